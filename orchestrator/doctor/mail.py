"""The mail of a session: letters that cannot be read, and letters that nobody will read."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import trio

from coterie.clock import Clock
from coterie.files import check_record
from coterie.mailbox.bridge.held import DIRECTORY as HELD
from coterie.mailbox.bridge.outgoing import DIRECTORY as OUTGOING
from coterie.mailbox.dead_letters import LETTERS_FILE
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxError
from coterie.mailbox.file.cursor_log import CURSOR_FILE, load_cursor
from coterie.mailbox.file.reading import Reading, find_cursor
from coterie.mailbox.file.segments import segment_numbers, segment_path
from coterie.mailbox.file.tail import read_record
from coterie.mailbox.left_behind import bury_left_behind, find_left_behind
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.doctor.flaws import damage, find_flaws, flaw_finding
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.post_office import DEAD, MAIL, PostOffice
from coterie.orchestrator.session import Session

ASIDE = ".damaged"
"""Ends the name under which a cursor that says nothing is kept."""


def mail_findings(session: Session, clock: Clock, *, is_alive: bool) -> Iterator[Finding]:
    """What is wrong with the mail of *session*. Nothing is taken. Blocks on the disk; raises `OSError`."""
    mail = session.directory / MAIL
    for directory in sorted(path for path in mail.glob("*/") if segment_numbers(path)):
        if not is_alive:
            yield from _in_cursor(session, directory)
        yield from _in_mailbox(session, directory)
    for flaw in find_flaws(mail / DEAD / LETTERS_FILE, check_record):
        yield flaw_finding(session, mail / DEAD / LETTERS_FILE, flaw, "`coterie mail dead` does not show it")
    for path in sorted((*mail.glob(f"{HELD}/*.json"), *mail.glob(f"{OUTGOING}/*/*.json"))):
        for flaw in find_flaws(path, check_record):
            advice = "whoever takes it next puts it among the dead letters"
            yield damage(session, path, flaw.reason, advice=advice)
    yield from _left(session, clock)


def _in_cursor(session: Session, directory: Path) -> Iterator[Finding]:
    path = directory / CURSOR_FILE
    if path.exists() and load_cursor(directory) is None:
        yield Finding(
            kind="damaged_record",
            where=str(path),
            what="it cannot be read; all mail that is kept comes again, and what is known is dropped",
            session=session.id,
            remedy=Remedy(
                words=f"set it aside as {path.name}{ASIDE}",
                apply=partial(trio.to_thread.run_sync, _set_aside_sync, session, path),
            ),
        )


def _set_aside_sync(session: Session, path: Path) -> None:
    if is_running(session):
        raise NotMended(f"session {session.id} runs again")
    if load_cursor(path.parent) is None:
        path.replace(path.with_name(path.name + ASIDE))


def _in_mailbox(session: Session, directory: Path) -> Iterator[Finding]:
    """Damage in what was not acknowledged: the rest was read, and what was no letter is among the dead."""
    with closing(Reading.from_cursor(directory, find_cursor(directory))) as reading:
        while (line := reading.next_line()) is not None:
            try:
                read_record(line.content)
            except EnvelopeCorrupt as exc:
                where = f"{segment_path(directory, line.span.segment)} at byte {line.span.start}"
                advice = f"{directory.name!r} puts it among the dead letters when it reads its mail"
                yield damage(session, where, str(exc), advice=advice)
            reading.pass_line(line)


def _left(session: Session, clock: Clock) -> Iterator[Finding]:
    with PostOffice.of(session, clock) as office:
        try:
            left = find_left_behind(office.files)
        except MailboxError as exc:
            yield damage(session, office.roster.path, str(exc), advice="nobody of this session can get mail")
            return
        for name, backlog in left.items():
            yield Finding(
                kind="left_mail",
                where=str(office.directory / name),
                what=f"{backlog.messages} waiting for {name!r}, who is not in the session any more",
                session=session.id,
                remedy=Remedy(words="move it to the dead letters", apply=partial(_bury, session, clock, name)),
            )


async def _bury(session: Session, clock: Clock, name: str) -> None:
    with PostOffice.of(session, clock) as office:
        await bury_left_behind(office.files, office.dead, name)
