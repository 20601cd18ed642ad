"""`coterie mail list`, `read` and `watch`: mail shown without acknowledging it."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

import attrs
import click
import msgspec
import trio

from coterie.directory_watch import open_polling_watch
from coterie.mailbox.contract import Backlog, MemberState
from coterie.mailbox.roster import find_member
from coterie.mailbox.transports.abandoned_mail import find_abandoned
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.completion_candidates import complete_recipient
from coterie.orchestrator.cli.mail.mail_options import json_option, print_json, run_with_mail, session_option
from coterie.orchestrator.cli.mail.mailbox_peek import MailboxPeek
from coterie.orchestrator.cli.mail.message_history import MessageHistory
from coterie.orchestrator.cli.mail.message_text import HistoryText, age_text, align_columns, message_text
from coterie.orchestrator.cli.output import open_output

POLL_SECONDS = 1.0
"""Seconds after which one looks by oneself: a directory that was deleted and made again is not told of."""
BREATH = 0.05
"""Seconds between two looks at least: what comes in a burst is read at once."""

HEAD = ("NAME", "STATE", "START", "WAITING", "BYTES", "OLDEST")


@click.command("list")
@session_option
@json_option
def list_mailboxes(*, session: str | None, is_json: bool) -> None:
    """List mailboxes: what waits there, and since when.

    Who has left is shown as long as there is mail for them, and so is mail that waits here for other sessions.
    """
    with open_output():
        run_with_mail(session, partial(_list, is_json=is_json))


@click.command()
@click.argument("name", shell_complete=complete_recipient)
@click.option("--follow", "-f", "is_following", is_flag=True, help="Go on until Ctrl-C.")
@session_option
@json_option
def read(*, name: str, is_following: bool, session: str | None, is_json: bool) -> None:
    """Show what waits for NAME. It goes on waiting: nothing is taken or acknowledged."""
    with open_output():
        run_with_mail(session, partial(_read, name=name, is_following=is_following, is_json=is_json))


@click.command()
@click.option("--all", "is_whole", is_flag=True, help="Begin with what happened before and is still on the disk.")
@session_option
@json_option
def watch(*, is_whole: bool, session: str | None, is_json: bool) -> None:
    """Show all mail as it moves, until Ctrl-C.

    A message is stored in a mailbox, and delivered once it is in the transcript of its recipient; it may be held for
    you to decide, or be dead.
    """
    with open_output():
        run_with_mail(session, partial(_watch, is_whole=is_whole, is_json=is_json))


async def _list(office: SessionMail, *, is_json: bool) -> None:
    rows = await _rows(office)
    if is_json:
        print_json([row.to_json() for row in rows])
        return
    if not office.roster.members():
        click.echo(f"nobody is on the roster of session {office.session.id}", err=True)
    if rows:
        click.echo("\n".join(align_columns(HEAD, [row.cells(office.clock.now()) for row in rows], left=2)))


@attrs.frozen(kw_only=True)
class _Row:
    """A place where mail waits."""

    name: str
    """Of the owner; of another session, its address."""
    state: MemberState | Literal["left", "listening", "down"]
    incarnation: int | None = None
    backlog: Backlog

    def to_json(self) -> dict[str, object]:
        """As `--json` prints it."""
        facts = {"name": self.name, "state": self.state, "incarnation": self.incarnation}
        return {**facts, **attrs.asdict(self.backlog)}

    def cells(self, now: float) -> tuple[str, ...]:
        """As a person reads it."""
        start = "-" if self.incarnation is None else f"{self.incarnation:,}"
        oldest = "-" if self.backlog.oldest is None else age_text(now - self.backlog.oldest)
        return (self.name, self.state, start, f"{self.backlog.messages:,}", f"{self.backlog.bytes:,}", oldest)


async def _rows(office: SessionMail) -> list[_Row]:
    """Whoever is on the roster; whoever left it, if mail was left behind; and sessions that mail waits for."""
    members = [
        _Row(name=m.name, state=m.state, incarnation=m.incarnation, backlog=office.files.backlog(m.name))
        for m in office.roster.members().values()
    ]
    left = [_Row(name=name, state="left", backlog=found) for name, found in find_abandoned(office.files).items()]
    queues = [
        _Row(name=queue.address, state="listening" if queue.is_listening else "down", backlog=queue.backlog)
        for queue in await office.bridge.outgoing.queues()
    ]
    return members + left + queues


async def _read(office: SessionMail, *, name: str, is_following: bool, is_json: bool) -> None:
    find_member(office.roster, name)
    directory = office.directory / name
    with closing(MailboxPeek.waiting(directory)) as log:

        async def look() -> None:
            for envelope in log.sweep():
                if is_json:
                    print_json(envelope)
                else:
                    click.echo(message_text(envelope, session=office.session.id, now=office.clock.now()))

        if is_following:
            await _poll_directories(lambda: (office.directory, directory), look)
        else:
            await look()


async def _watch(office: SessionMail, *, is_whole: bool, is_json: bool) -> None:
    text = HistoryText(office.session.id)
    with closing(MessageHistory.of(office)) as traffic:

        async def look() -> None:
            for passage in await traffic.sweep():
                if is_json:
                    print_json({"session": office.session.id, **msgspec.to_builtins(passage)})
                else:
                    click.echo(text.line(passage))

        if not is_whole:
            for passage in await traffic.sweep():
                text.learn(passage)
        click.echo(f"watching session {office.session.id}; Ctrl-C ends it", err=True)
        await _poll_directories(traffic.directories, look)


async def _poll_directories(directories: Callable[[], Iterable[Path]], look: Callable[[], Awaitable[None]]) -> NoReturn:
    """Look now, and again whenever something has changed in one of the directories; there may be more each time."""
    with open_polling_watch() as changes:
        while True:
            # Watched before they are looked at, so that nothing is written in between unseen.
            for directory in directories():
                changes.watch(directory)
            await look()
            await trio.sleep(BREATH)
            with trio.move_on_after(POLL_SECONDS):
                await changes.wait()
