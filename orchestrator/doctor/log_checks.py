"""Checks of logs, transcripts, ledger and approvals for torn and damaged lines."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.event_reader import parse_event
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.errors import ConfigInvalid
from coterie.files import Appender, sync_directory
from coterie.orchestrator.approvals.store import read_approvals
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.events.session_reader import SessionReader
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry
from coterie.orchestrator.session.overview import is_running
from coterie.session_directory import EVENT_LOG, TRANSCRIPT, SessionDirectory

TORN_SUFFIX = ".torn"
"""Ends the name of the file in which a torn end is kept."""

LineCheck = Callable[[bytes], object]
"""Raises `ValueError` for a line that is not as it was written."""


@attrs.frozen(kw_only=True)
class DamagedLine:
    """A line that cannot be read."""

    line: int
    """The first is 1; blank ones count."""
    reason: str
    is_torn: bool
    """It is the beginning of something: a write did not come to its end."""
    is_last: bool
    """Nothing was written behind it, not even the end of the line."""


def find_damaged_lines(path: Path, check: LineCheck) -> Iterator[DamagedLine]:
    """The lines of *path* that *check* refuses; none of a file that is not there. Raises `OSError`."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            line = content.removesuffix(b"\n")
            try:
                if line:
                    check(line)
            except ValueError as exc:
                yield DamagedLine(line=number, reason=str(exc), is_torn=_is_torn(line), is_last=line == content)


def damaged_line_finding(session: SessionDirectory, path: Path, flaw: DamagedLine, loss: str) -> DoctorFinding:
    """A line that its readers pass over; *loss* is what a damaged one takes away."""
    where = f"{path}:{flaw.line}"
    if not flaw.is_torn:
        return damage_finding(session, where, flaw.reason, advice=loss)
    what = "a write was torn here; whoever reads passes over it"
    return DoctorFinding(kind="torn_record", where=where, what=what, session=session.id, is_harmless=True)


def damage_finding(session: SessionDirectory, where: object, reason: str, *, advice: str) -> DoctorFinding:
    """A record that cannot be read, and is left as it is."""
    what = f"it cannot be read: {reason}"
    return DoctorFinding(kind="damaged_record", where=str(where), what=what, session=session.id, advice=advice)


def torn_end_finding(session: SessionDirectory, path: Path) -> DoctorFinding:
    """A log that nobody writes, and that ends in the middle of a line."""
    return DoctorFinding(
        kind="torn_record",
        where=str(path),
        what="the last write was torn; what was recorded before is whole",
        session=session.id,
        remedy=RepairAction(
            description=f"set the torn end aside in {path.name}{TORN_SUFFIX}",
            apply=partial(trio.to_thread.run_sync, _set_aside_sync, session, path),
        ),
    )


def _is_torn(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError) as exc:
        return line.startswith(b"{") and "truncated" in str(exc)
    return False


def _set_aside_sync(session: SessionDirectory, path: Path) -> None:
    """Keep what stands behind the last line in a file of its own before it is cut off here."""
    if is_running(session):
        raise RepairFailed(f"session {session.id} runs again")
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    if size < len(content):
        with Appender.open(path.with_name(path.name + TORN_SUFFIX)) as aside:
            aside.append(content[size:] + b"\n")
            aside.sync()
        sync_directory(path.parent)
        with Appender.open(path) as log:
            log.cut(size)


def log_findings(session: SessionDirectory, *, is_alive: bool) -> Iterator[DoctorFinding]:
    """What is wrong with the logs of *session*. Blocks on the disk; raises `OSError`.

    While it *is_alive* a line without an end is one that is being written.
    """
    directories = SessionReader(session.directory).agent_directories()
    for directory in directories:
        yield from _in_transcript(session, directory / TRANSCRIPT, is_alive=is_alive)
    for directory in (*directories, session.directory):
        yield from _in_log(session, directory / EVENT_LOG, _check_event, "no view shows it", is_alive=is_alive)
    ledger, loss = session.directory / LEDGER, "it is missing in `coterie costs`"
    yield from _in_log(session, ledger, LedgerEntry.from_bytes, loss, is_alive=is_alive)


def _in_transcript(session: SessionDirectory, path: Path, *, is_alive: bool) -> Iterator[DoctorFinding]:
    try:
        loaded = load_transcript(path)
    except FileNotFoundError:
        return
    except TranscriptCorrupt as exc:
        advice = "the agent cannot be resumed; `coterie logs` shows what can be read"
        yield damage_finding(session, f"{path}:{exc.line}", exc.reason, advice=advice)
        return
    if loaded.dropped_bytes and not is_alive and path.read_bytes()[loaded.size :].strip(b"\n"):
        yield torn_end_finding(session, path)


def _in_log(
    session: SessionDirectory, path: Path, check: LineCheck, loss: str, *, is_alive: bool
) -> Iterator[DoctorFinding]:
    for flaw in find_damaged_lines(path, check):
        if not flaw.is_last:
            yield damaged_line_finding(session, path, flaw, loss)
        elif not is_alive:
            yield torn_end_finding(session, path)


def _check_event(line: bytes) -> None:
    parse_event(line, session="")


ADVICE = "it grants nothing, and the root writes it anew once its agent asks again; find out who has written it"


def approval_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """What stands in the files of approvals of *session*, and does not count. Blocks on the disk; raises `OSError`."""
    try:
        records = read_approvals(session)
    except ConfigInvalid as exc:
        advice = "without it nothing that was approved counts after a restart: agents have to ask again"
        yield _approval_finding(session, exc.source, exc.reason, advice)
        return
    for kept in records:
        if kept.doubt is not None:
            yield _approval_finding(session, str(kept.path), kept.doubt, ADVICE)


def _approval_finding(session: SessionDirectory, where: str, what: str, advice: str) -> DoctorFinding:
    return DoctorFinding(kind="damaged_record", where=where, what=what, session=session.id, advice=advice)
