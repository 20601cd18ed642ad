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
    """Run *act* with the mail of a session, opened as `open_session_mail` does.

    Raises `UsageRefused` for an error that the user can correct, and another `ClickException` for one of the machine.
    """
    with (
        open_session_mail(session) as mail,
        translate_errors(user=USER_ERRORS, machine=(MailboxError,), path=mail.directory),
    ):
        return trio.run(act, mail)


def open_session_mail(session: str | None) -> SessionMail:
    """Open the mail of a session, by default of the newest one of this directory. Raises `ConfigInvalid`."""
    return SessionMail.open(find_session(session), Clock.from_environment())


Item = TypeVar("Item")

SHOWN = 60
"""Characters of a message next to its id."""


def complete_held(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ids of held messages."""
    messages = _find_candidates(ctx, lambda mail: trio.run(mail.held.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for m in messages if m.id.startswith(incomplete)]


def complete_outgoing(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the ids of messages that are queued for other sessions."""
    messages = _find_candidates(ctx, lambda mail: trio.run(mail.bridge.outgoing.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for _, m in messages if m.id.startswith(incomplete)]


def complete_ended_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer agents that have abandoned mail, and agents that have ended."""

    def find(mail: SessionMail) -> list[CompletionItem]:
        ended = [member.name for member in mail.roster.members().values() if member.state == "ended"]
        left = [CompletionItem(name, help="left") for name in find_abandoned(mail.files)]
        return left + [CompletionItem(name, help="ended") for name in ended]

    return [item for item in _find_candidates(ctx, find) if item.value.startswith(incomplete)]


def complete_dead(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the numbers of dead letters that are valid messages and were not sent again."""
    messages = _find_candidates(ctx, lambda mail: mail.dead_letters.pending())
    found = [(str(number), message.envelope) for number, message in messages if message.envelope is not None]
    return [CompletionItem(n, help=one_line(m.body, SHOWN)) for n, m in found if n.startswith(incomplete)]


def _find_candidates(ctx: click.Context, find: Callable[[SessionMail], Iterable[Item]]) -> list[Item]:
    """Find completion candidates in the mail of the session; none if the mail cannot be found or read."""
    try:
        with open_session_mail(ctx.params.get("session")) as mail:
            return list(find(mail))
    except (ConfigInvalid, MailboxError, OSError):
        return []
