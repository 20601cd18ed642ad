"""What all commands of `coterie mail` begin and end with: a session's mail, options, errors in one line."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec
import trio

from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.cli.completion import complete_session
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import Session
from coterie.orchestrator.user_mail import FOR_USER

Result = TypeVar("Result")

session_option = click.option(
    "--session", "-s", metavar="ID", shell_complete=complete_session, help="The session; the newest one of here."
)
json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/mail-commands.md.")


def use_office(session: str | None, act: Callable[[PostOffice], Awaitable[Result]]) -> Result:
    """Do something with the mail of a session, see `open_office`.

    Raises `Refused` for what the user must mend, and another `ClickException` for what the machine refuses.
    """
    with open_office(session) as office:
        try:
            return trio.run(act, office)
        except FOR_USER as exc:
            raise Refused(printable(str(exc))) from exc
        except MailboxError as exc:
            raise click.ClickException(printable(str(exc))) from exc
        except BrokenPipeError:
            raise  # nobody reads standard output any more: that is no failure of the mail
        except OSError as exc:
            raise click.ClickException(f"{exc.filename or office.directory}: {exc.strerror}") from exc


def print_json(value: object) -> None:
    """One line of JSON, at once."""
    click.echo(msgspec.json.encode(value))


def open_office(session: str | None) -> PostOffice:
    """The mail of the session whose id begins so, or of the newest one of this directory. Raises `ConfigInvalid`."""
    found = Session.find(session) if session else Session.newest(Path.cwd())
    return PostOffice.of(found, Clock.from_environment())
