"""Checks for damaged records in logs, transcripts, ledger, approvals and mail, and for mail that no agent will read."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import attrs
import msgspec

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.event_reader import parse_event
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.files import Appender, check_record, sync_directory
from coterie.mailbox.dead_letters import DEAD_LETTERS_FILE
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxError
from coterie.mailbox.transports.abandoned_mail import dead_letter_abandoned, find_abandoned
from coterie.mailbox.transports.bridge.held_mail import DIRECTORY as HELD
from coterie.mailbox.transports.bridge.outbox import DIRECTORY as OUTGOING
from coterie.mailbox.transports.file.cursor import CURSOR_FILE, load_cursor
from coterie.mailbox.transports.file.log_reader import LogReader, find_cursor
from coterie.mailbox.transports.file.log_segments import segment_numbers, segment_path
from coterie.mailbox.transports.file.segment_reader import parse_record
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.store import read_approvals
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed, blocking_repair
from coterie.orchestrator.events.session_reader import SessionReader
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry
from coterie.orchestrator.session.overview import is_running
from coterie.session_directory import DEAD_LETTER_DIRECTORY, EVENT_LOG, MAIL_DIRECTORY, TRANSCRIPT, SessionDirectory

TORN_SUFFIX = ".torn"
"""Suffix of the file to which the repair moves an incomplete last line of a log."""

LineCheck = Callable[[bytes], object]
"""Function that raises `ValueError` for a damaged line."""


@attrs.frozen(kw_only=True)
class DamagedLine:
    """A line of a log that cannot be decoded, and the reason."""

    line: int
    """Line number, counted from 1; blank lines count."""
    reason: str
    is_torn: bool
    """True if the line is the start of a record whose write was interrupted."""
    is_last: bool
    """True if nothing follows the line, not even a newline."""


def find_damaged_lines(path: Path, check: LineCheck) -> Iterator[DamagedLine]:
    """Yield the lines of *path* for which *check* raises `ValueError`; none without the file. Raises `OSError`."""
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


def damaged_line_finding(session: SessionDirectory, path: Path, damaged: DamagedLine, loss: str) -> DoctorFinding:
    """Return the finding for *damaged*, a line that readers of the file *path* skip.

    *loss* says what the loss of the line means. It is left out if only an interrupted write left the line.
    """
    where = f"{path}:{damaged.line}"
    if not damaged.is_torn:
        return damage_finding(session, where, damaged.reason, advice=loss)
    what = "a write was interrupted here; readers skip the line"
    return DoctorFinding(kind="torn_record", where=where, what=what, session=session.id, is_harmless=True)


def damage_finding(session: SessionDirectory, where: object, reason: str, *, advice: str) -> DoctorFinding:
    """Return the finding for an unreadable record at *where*. It has no automatic repair, only *advice*."""
    what = f"it cannot be read: {reason}"
    return DoctorFinding(kind="damaged_record", where=str(where), what=what, session=session.id, advice=advice)


def torn_end_finding(session: SessionDirectory, path: Path) -> DoctorFinding:
    """Return the finding for the log *path*, which no process writes now and whose last line is incomplete."""
    return DoctorFinding(
        kind="torn_record",
        where=str(path),
        what="the last write was interrupted, so the last record is incomplete",
        session=session.id,
        remedy=blocking_repair(f"move the incomplete end to {path.name}{TORN_SUFFIX}", _set_aside_sync, session, path),
    )


def _is_torn(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError) as exc:
        return line.startswith(b"{") and "truncated" in str(exc)
    return False


def _set_aside_sync(session: SessionDirectory, path: Path) -> None:
    """Move an incomplete last line of the log *path* to a separate file. Raises `RepairFailed` if *session* runs."""
    if is_running(session):
        raise RepairFailed(f"session {session.id} is running again, so nothing was repaired; stop it first")
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
    """Find damaged lines in event logs, transcripts and ledger of *session*. Blocks on the disk; raises `OSError`.

    If the session *is_alive*, an incomplete last line is ignored, because a process may be writing it.
    """
    check_event = partial(parse_event, session="")
    directories = SessionReader(session.directory).agent_directories()
    for directory in directories:
        yield from _in_transcript(session, directory / TRANSCRIPT, is_alive=is_alive)
    for directory in (*directories, session.directory):
        yield from _in_log(session, directory / EVENT_LOG, check_event, "views do not show it", is_alive=is_alive)
    ledger, loss = session.directory / LEDGER, "it is missing from `coterie costs`"
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
    for damaged in find_damaged_lines(path, check):
        if not damaged.is_last:
            yield damaged_line_finding(session, path, damaged, loss)
        elif not is_alive:
            yield torn_end_finding(session, path)


def approval_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """Find unreadable and untrusted approval files of *session*. Blocks on the disk; raises `OSError`."""
    try:
        records = read_approvals(session)
    except ConfigInvalid as exc:
        invalid = [(exc.source, exc.reason, "without it all approvals are void after a restart: agents must ask again")]
    else:
        advice = "it grants nothing; the root rewrites it when the agent asks again; find out which program wrote it"
        invalid = [(str(kept.path), kept.doubt, advice) for kept in records if kept.doubt is not None]
    for where, what, advice in invalid:
        yield DoctorFinding(kind="damaged_record", where=where, what=what, session=session.id, advice=advice)


DAMAGED_SUFFIX = ".damaged"
"""Suffix that the repair adds to the name of an unreadable cursor (read position) of a mailbox."""


def mail_findings(session: SessionDirectory, clock: Clock, *, is_alive: bool) -> Iterator[DoctorFinding]:
    """Find damage in the mail of *session*, and messages to agents that have left; no message is consumed.

    If the session *is_alive*, the read positions of mailboxes are not checked. Blocks on the disk; raises `OSError`.
    """
    mail = session.directory / MAIL_DIRECTORY
    for directory in sorted(path for path in mail.glob("*/") if segment_numbers(path)):
        if not is_alive:
            yield from _in_cursor(session, directory)
        yield from _in_mailbox(session, directory)
    dead_letters = mail / DEAD_LETTER_DIRECTORY / DEAD_LETTERS_FILE
    for damaged in find_damaged_lines(dead_letters, check_record):
        yield damaged_line_finding(session, dead_letters, damaged, "`coterie mail dead` does not show it")
    for path in sorted((*mail.glob(f"{HELD}/*.json"), *mail.glob(f"{OUTGOING}/*/*.json"))):
        for damaged in find_damaged_lines(path, check_record):
            yield damage_finding(session, path, damaged.reason, advice="the next delivery moves it to the dead letters")
    yield from _abandoned(session, clock)


def _in_cursor(session: SessionDirectory, directory: Path) -> Iterator[DoctorFinding]:
    path = directory / CURSOR_FILE
    if path.exists() and load_cursor(directory) is None:
        yield DoctorFinding(
            kind="damaged_record",
            where=str(path),
            what="it cannot be read; mail that was already read is delivered again, and the agent ignores it",
            session=session.id,
            remedy=blocking_repair(f"rename it to {path.name}{DAMAGED_SUFFIX}", _set_cursor_aside_sync, session, path),
        )


def _set_cursor_aside_sync(session: SessionDirectory, path: Path) -> None:
    if is_running(session):
        raise RepairFailed(f"session {session.id} is running again, so nothing was repaired; stop it first")
    if load_cursor(path.parent) is None:
        path.replace(path.with_name(path.name + DAMAGED_SUFFIX))


def _in_mailbox(session: SessionDirectory, directory: Path) -> Iterator[DoctorFinding]:
    """Find damaged messages that the agent of the mailbox *directory* has not read yet.

    Those that were read are not checked, because the agent has moved damaged ones to the dead letters (undeliverable).
    """
    with closing(LogReader.from_cursor(directory, find_cursor(directory))) as reader:
        while (line := reader.next_record()) is not None:
            try:
                parse_record(line.content)
            except EnvelopeCorrupt as exc:
                where = f"{segment_path(directory, line.span.segment)} at byte {line.span.start}"
                advice = f"{directory.name!r} moves it to the dead letters when it reads its mail"
                yield damage_finding(session, where, str(exc), advice=advice)
            reader.skip_record(line)


def _abandoned(session: SessionDirectory, clock: Clock) -> Iterator[DoctorFinding]:
    with SessionMail.open(session, clock) as mail:
        try:
            abandoned = find_abandoned(mail.files)
        except MailboxError as exc:
            yield damage_finding(session, mail.roster.path, str(exc), advice="no agent of this session can get mail")
            return
        for name, backlog in abandoned.items():
            yield DoctorFinding(
                kind="left_mail",
                where=str(mail.directory / name),
                what=f"{backlog.messages} messages wait for {name!r}, which has left and will not read them",
                session=session.id,
                remedy=RepairAction(
                    description="move it all to the dead letters", apply=partial(_dead_letter, session, clock, name)
                ),
            )


async def _dead_letter(session: SessionDirectory, clock: Clock, name: str) -> None:
    with SessionMail.open(session, clock) as mail:
        await dead_letter_abandoned(mail.files, mail.dead_letters, name)
