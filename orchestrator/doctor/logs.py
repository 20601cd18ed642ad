"""What a session has told and recorded: its transcripts, event logs and ledger, read as their readers do."""

from collections.abc import Iterator
from pathlib import Path

from coterie.agents.conversation.transcript import load_transcript
from coterie.agents.errors import TranscriptCorrupt
from coterie.orchestrator.doctor.finding import Finding
from coterie.orchestrator.doctor.flaws import Check, damage, find_flaws, flaw_finding, torn_end
from coterie.orchestrator.events.observed import read_told
from coterie.orchestrator.events.reader import SessionReader
from coterie.orchestrator.events.sources import EVENT_LOG, TRANSCRIPT
from coterie.orchestrator.ledger.ledger import LEDGER
from coterie.orchestrator.ledger.line import LedgerLine
from coterie.orchestrator.session import Session


def log_findings(session: Session, *, is_alive: bool) -> Iterator[Finding]:
    """What is wrong with the logs of *session*. Blocks on the disk; raises `OSError`.

    While it *is_alive* a line without an end is one that is being written.
    """
    directories = SessionReader(session.directory).agent_directories()
    for directory in directories:
        yield from _in_transcript(session, directory / TRANSCRIPT, is_alive=is_alive)
    for directory in (*directories, session.directory):
        yield from _in_log(session, directory / EVENT_LOG, _check_event, "no view shows it", is_alive=is_alive)
    ledger, loss = session.directory / LEDGER, "it is missing in `coterie costs`"
    yield from _in_log(session, ledger, LedgerLine.from_bytes, loss, is_alive=is_alive)


def _in_transcript(session: Session, path: Path, *, is_alive: bool) -> Iterator[Finding]:
    try:
        loaded = load_transcript(path)
    except FileNotFoundError:
        return
    except TranscriptCorrupt as exc:
        advice = "the agent cannot be resumed; `coterie logs` shows what can be read"
        yield damage(session, f"{path}:{exc.line}", exc.reason, advice=advice)
        return
    if loaded.dropped_bytes and not is_alive and path.read_bytes()[loaded.size :].strip(b"\n"):
        yield torn_end(session, path)


def _in_log(session: Session, path: Path, check: Check, loss: str, *, is_alive: bool) -> Iterator[Finding]:
    for flaw in find_flaws(path, check):
        if not flaw.is_last:
            yield flaw_finding(session, path, flaw, loss)
        elif not is_alive:
            yield torn_end(session, path)


def _check_event(line: bytes) -> None:
    read_told(line, session="")
