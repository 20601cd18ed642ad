"""Options, session lookup and completion shared by the `coterie mail` commands."""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import trio
from click.shell_completion import CompletionItem

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.transports.abandoned_mail import find_abandoned
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import UsageRefused, one_line, sanitize
from coterie.orchestrator.control.user_mail import USER_ERRORS
from coterie.session_directory import SessionDirectory

ActResult = TypeVar("ActResult")

session_option = click.option(
    "--session", "-s", metavar="ID", shell_complete=complete_session, help="The session; the newest one of here."
)
json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/mail-commands.md.")


def run_with_mail(session: str | None, act: Callable[[SessionMail], Awaitable[ActResult]]) -> ActResult:
    """Do something with the mail of a session, see `open_session_mail`.

    Raises `UsageRefused` for what the user must mend, and another `ClickException` for what the machine refuses.
    """
    with open_session_mail(session) as office:
        try:
            return trio.run(act, office)
        except USER_ERRORS as exc:
            raise UsageRefused(sanitize(str(exc))) from exc
        except MailboxError as exc:
            raise click.ClickException(sanitize(str(exc))) from exc
        except BrokenPipeError:
            raise  # nobody reads standard output any more: that is no failure of the mail
        except OSError as exc:
            raise click.ClickException(f"{exc.filename or office.directory}: {exc.strerror}") from exc


def print_json(value: object) -> None:
    """One line of JSON, at once."""
    click.echo(msgspec.json.encode(value))


def open_session_mail(session: str | None) -> SessionMail:
    """The mail of the session whose id begins so, or of the newest one of this directory. Raises `ConfigInvalid`."""
    found = SessionDirectory.find(session) if session else SessionDirectory.newest(Path.cwd())
    return SessionMail.open(found, Clock.from_environment())


Item = TypeVar("Item")

SHOWN = 60
"""Characters of a message."""


def complete_held(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of held letters."""
    letters = _find_candidates(ctx, lambda office: trio.run(office.held.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for m in letters if m.id.startswith(incomplete)]


def complete_outgoing(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of letters that wait for other sessions."""
    letters = _find_candidates(ctx, lambda office: trio.run(office.bridge.outgoing.messages))
    return [CompletionItem(m.id, help=one_line(m.body, SHOWN)) for _, m in letters if m.id.startswith(incomplete)]


def complete_ended_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Who has left mail behind, and who has ended."""

    def find(office: SessionMail) -> list[CompletionItem]:
        ended = [member.name for member in office.roster.members().values() if member.state == "ended"]
        left = [CompletionItem(name, help="left") for name in find_abandoned(office.files)]
        return left + [CompletionItem(name, help="ended") for name in ended]

    return [item for item in _find_candidates(ctx, find) if item.value.startswith(incomplete)]


def complete_dead(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The numbers of dead letters that are messages, and were not sent again."""
    letters = _find_candidates(ctx, lambda office: office.dead_letters.pending())
    found = [(str(number), letter.envelope) for number, letter in letters if letter.envelope is not None]
    return [CompletionItem(n, help=one_line(m.body, SHOWN)) for n, m in found if n.startswith(incomplete)]


def _find_candidates(ctx: click.Context, find: Callable[[SessionMail], Iterable[Item]]) -> list[Item]:
    """What there is to offer: nothing where there is no such session, or its mail cannot be read."""
    try:
        with open_session_mail(ctx.params.get("session")) as office:
            return list(find(office))
    except (ConfigInvalid, MailboxError, OSError):
        return []
