"""Options, session lookup and completion shared by the `coterie mail` commands."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import click
import trio
from click.shell_completion import CompletionItem

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.transports.abandoned_mail import find_abandoned
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli import shared_options
from coterie.orchestrator.cli.output import one_line, translate_errors
from coterie.orchestrator.cli.shared_options import find_session
from coterie.orchestrator.control.user_mail import USER_ERRORS

ActResult = TypeVar("ActResult")

json_option = shared_options.json_option("mail-commands")


def run_with_mail(session: str | None, act: Callable[[SessionMail], Awaitable[ActResult]]) -> ActResult:
    """Open the mail of *session* (None: the newest session of this directory), run *act* with it, return its result.

    Raises `ConfigInvalid` if there is no such session, `UsageRefused` for errors of the user, else `ClickException`.
    """
    with (
        open_session_mail(session) as mail,
        translate_errors(user=USER_ERRORS, machine=(MailboxError,), path=mail.directory),
    ):
        return trio.run(act, mail)


def open_session_mail(session: str | None) -> SessionMail:
    """Open the mail of *session*, by default this directory's newest. Raises `ConfigInvalid` if there is none."""
    return SessionMail.open(find_session(session), Clock.from_environment())


Item = TypeVar("Item")

SHOWN = 60
"""Maximum number of characters of a message that the shell shows next to the completed message id."""


def complete_held(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: ids of held messages, which another session sent and the user must release or drop."""
    messages = _find_candidates(ctx, lambda mail: trio.run(mail.held.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for m in messages if m.id.startswith(incomplete)]


def complete_outgoing(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: ids of messages to other sessions that are queued because they are not yet delivered."""
    messages = _find_candidates(ctx, lambda mail: trio.run(mail.bridge.outgoing.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for _, m in messages if m.id.startswith(incomplete)]


def complete_ended_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: agents that ended, and names that left the session but still have unread messages."""

    def find(mail: SessionMail) -> list[CompletionItem]:
        ended = [member.name for member in mail.roster.members().values() if member.state == "ended"]
        left = [CompletionItem(name, help="left") for name in find_abandoned(mail.files)]
        return left + [CompletionItem(name, help="ended") for name in ended]

    return [item for item in _find_candidates(ctx, find) if item.value.startswith(incomplete)]


def complete_dead(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: numbers of readable dead letters (undeliverable messages) that were not sent again."""
    messages = _find_candidates(ctx, lambda mail: mail.dead_letters.pending())
    found = [(str(number), message.envelope) for number, message in messages if message.envelope is not None]
    return [CompletionItem(n, help=one_line(m.body, SHOWN)) for n, m in found if n.startswith(incomplete)]


def _find_candidates(ctx: click.Context, find: Callable[[SessionMail], Iterable[Item]]) -> list[Item]:
    """Return the items that *find* returns for the mail of the session; empty if the mail cannot be found or read."""
    try:
        with open_session_mail(ctx.params.get("session")) as mail:
            return list(find(mail))
    except (ConfigInvalid, MailboxError, OSError):
        return []
