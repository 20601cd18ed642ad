"""Checks of the mail of a session: damaged files and abandoned messages."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from coterie.clock import Clock
from coterie.files import check_record
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
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed, blocking_repair
from coterie.orchestrator.doctor.log_checks import damage_finding, damaged_line_finding, find_damaged_lines
from coterie.orchestrator.session.overview import is_running
from coterie.session_directory import DEAD_LETTER_DIRECTORY, MAIL_DIRECTORY, SessionDirectory

DAMAGED_SUFFIX = ".damaged"
"""Suffix of the file that keeps an unreadable cursor."""


def mail_findings(session: SessionDirectory, clock: Clock, *, is_alive: bool) -> Iterator[DoctorFinding]:
    """Find problems in the mail of *session* without consuming messages. Blocks on the disk; raises `OSError`."""
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
            what="it cannot be read; all stored mail is delivered again, and the recipient drops duplicates",
            session=session.id,
            remedy=blocking_repair(f"rename it to {path.name}{DAMAGED_SUFFIX}", _set_aside_sync, session, path),
        )


def _set_aside_sync(session: SessionDirectory, path: Path) -> None:
    if is_running(session):
        raise RepairFailed(f"session {session.id} is running again")
    if load_cursor(path.parent) is None:
        path.replace(path.with_name(path.name + DAMAGED_SUFFIX))


def _in_mailbox(session: SessionDirectory, directory: Path) -> Iterator[DoctorFinding]:
    """Find damage in unacknowledged records; damaged records before them are dead letters already."""
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
                what=f"{backlog.messages} messages are waiting for {name!r}, which has left the session",
                session=session.id,
                remedy=RepairAction(
                    description="move it to the dead letters", apply=partial(_dead_letter, session, clock, name)
                ),
            )


async def _dead_letter(session: SessionDirectory, clock: Clock, name: str) -> None:
    with SessionMail.open(session, clock) as mail:
        await dead_letter_abandoned(mail.files, mail.dead_letters, name)
