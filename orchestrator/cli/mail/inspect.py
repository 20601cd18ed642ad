"""`coterie mail list`, `read` and `watch`: show mail without acknowledging it."""

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
from coterie.orchestrator.cli.mail.mail_options import json_option, run_with_mail
from coterie.orchestrator.cli.mail.mailbox_peek import MailboxPeek
from coterie.orchestrator.cli.mail.message_history import MessageHistory
from coterie.orchestrator.cli.mail.message_text import HistoryText, message_text
from coterie.orchestrator.cli.output import format_age, print_result
from coterie.orchestrator.cli.shared_options import session_option
from coterie.orchestrator.cli.text_table import align_columns

POLL_SECONDS = 1.0
"""Maximum seconds between two reads of mail; a directory that is deleted and created again causes no notification."""
BREATH = 0.05
"""Minimum seconds between two reads of mail, so that several messages stored at nearly the same time are read once."""


@click.command("list", short_help="List the mailboxes of a session.")
@session_option
@json_option
def list_mailboxes(*, session: str | None, is_json: bool) -> None:
    """List the mailboxes of a session with the number, size and age of their unread messages.

    Also lists agents that have left the session (state left), as long as they have unread messages, and the queues of
    messages to other sessions. Messages to an agent with state ended are refused. Exits 1 if the mail cannot be read.
    """

    async def act(mail: SessionMail) -> None:
        rows = await _rows(mail)
        head = ("NAME", "STATE", "START", "WAITING", "BYTES", "OLDEST")
        table = align_columns(head, [row.cells(mail.clock.now()) for row in rows], left=2) if rows else []
        if not is_json and not mail.roster.members():
            click.echo(f"session {mail.session.id} has no agents yet; look again later", err=True)
        print_result([row.to_json() for row in rows], table, is_json=is_json)

    run_with_mail(session, act)


@click.command(short_help="Show the unread messages of an agent.")
@click.argument("name", shell_complete=complete_recipient)
@click.option("--follow", "-f", "is_following", is_flag=True, help="Show new messages too, until Ctrl-C.")
@session_option
@json_option
def read(*, name: str, is_following: bool, session: str | None, is_json: bool) -> None:
    """Show unread messages of agent NAME (see `coterie mail list`). They stay unread. Exits 1 after a file error."""
    run_with_mail(session, partial(_read, name=name, is_following=is_following, is_json=is_json))


@click.command(short_help="Print each message of a session as it is sent.")
@click.option(
    "--all",
    "is_whole",
    is_flag=True,
    help="First show what happened so far, as far as it is still on disk: stored, delivered, held and dead messages.",
)
@session_option
@json_option
def watch(*, is_whole: bool, session: str | None, is_json: bool) -> None:
    """Print a line when a message of a session is stored, delivered, held or undeliverable, until Ctrl-C.

    A message is stored in the mailbox of its recipient, and delivered when the recipient has it in its conversation. A
    message from another session may be held until you release it with `coterie mail held`. An undeliverable message
    becomes a dead letter; see `coterie mail dead`. Exits 1 if the mail cannot be read.
    """
    run_with_mail(session, partial(_watch, is_whole=is_whole, is_json=is_json))


@attrs.frozen(kw_only=True)
class _Row:
    """Row of `coterie mail list`: one agent's mailbox, or one queue of messages to another session."""

    name: str
    """Name of the agent that owns the mailbox, or address of the other session."""
    state: MemberState | Literal["left", "listening", "down"]
    incarnation: int | None = None
    backlog: Backlog

    def to_json(self) -> dict[str, object]:
        """Return the row as a JSON object for `--json`."""
        facts = {"name": self.name, "state": self.state, "incarnation": self.incarnation}
        return {**facts, **attrs.asdict(self.backlog)}

    def cells(self, now: float) -> tuple[str, ...]:
        """Return the cells of the table row; *now*, in seconds since 1970, gives the age of the oldest message."""
        start = "-" if self.incarnation is None else f"{self.incarnation:,}"
        oldest = "-" if self.backlog.oldest is None else format_age(now - self.backlog.oldest)
        return (self.name, self.state, start, f"{self.backlog.messages:,}", f"{self.backlog.bytes:,}", oldest)


async def _rows(mail: SessionMail) -> list[_Row]:
    """Return rows for all agents of the session, for mail of agents that left, and for queues to other sessions."""
    members = [
        _Row(name=m.name, state=m.state, incarnation=m.incarnation, backlog=mail.files.backlog(m.name))
        for m in mail.roster.members().values()
    ]
    left = [_Row(name=name, state="left", backlog=found) for name, found in find_abandoned(mail.files).items()]
    queues = [
        _Row(name=queue.address, state="listening" if queue.is_listening else "down", backlog=queue.backlog)
        for queue in await mail.bridge.outgoing.queues()
    ]
    return members + left + queues


async def _read(mail: SessionMail, *, name: str, is_following: bool, is_json: bool) -> None:
    find_member(mail.roster, name)
    directory = mail.directory / name
    with closing(MailboxPeek.waiting(directory)) as log:

        async def print_new() -> None:
            for envelope in log.sweep():
                text = message_text(envelope, session=mail.session.id, now=mail.clock.now())
                print_result(envelope, [text], is_json=is_json)

        if is_following:
            await _poll_directories(lambda: (mail.directory, directory), print_new)
        else:
            await print_new()


async def _watch(mail: SessionMail, *, is_whole: bool, is_json: bool) -> None:
    text = HistoryText(mail.session.id)
    with closing(MessageHistory.of(mail)) as history:

        async def print_new() -> None:
            for hop in await history.sweep():
                facts = {"session": mail.session.id, **msgspec.to_builtins(hop)}
                print_result(facts, [text.line(hop)], is_json=is_json)

        if not is_whole:
            for hop in await history.sweep():
                text.learn(hop)
        click.echo(f"watching session {mail.session.id}; stop with Ctrl-C", err=True)
        await _poll_directories(history.directories, print_new)


async def _poll_directories(
    directories: Callable[[], Iterable[Path]], print_new: Callable[[], Awaitable[None]]
) -> NoReturn:
    """Call *print_new* now, after each change in *directories* (listed again each time), and every `POLL_SECONDS`."""
    with open_polling_watch() as changes:
        while True:
            # Watched before they are read, so that no write is missed in between.
            for directory in directories():
                changes.watch(directory)
            await print_new()
            await trio.sleep(BREATH)
            with trio.move_on_after(POLL_SECONDS):
                await changes.wait()
