"""`coterie mail dead` and `sweep`: mail that nobody got, and mail that nobody will get."""

import click
import msgspec

from coterie.mailbox.dead_letters import Buried
from coterie.mailbox.left_behind import bury_left_behind, find_left_behind
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.mail.completion import complete_dead, complete_gone
from coterie.orchestrator.cli.mail.office import json_option, print_json, session_option, use_office
from coterie.orchestrator.cli.mail.sending import print_receipt
from coterie.orchestrator.cli.mail.storing import store
from coterie.orchestrator.cli.mail.wording import dead_text
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.control_socket.requests import ResendLetter
from coterie.orchestrator.post_office import PostOffice


@click.command()
@click.option("--resend", type=int, metavar="NUMBER", shell_complete=complete_dead, help="Send this one again.")
@click.option("--all", "is_whole", is_flag=True, help="List also those that were sent again.")
@session_option
@json_option
def dead(*, resend: int | None, is_whole: bool, session: str | None, is_json: bool) -> None:
    """List mail that could not be delivered, or send it again.

    What is sent again is a new message with the old sender and words; the dead letter then waits no more.
    """
    if resend is not None and is_whole:
        raise click.UsageError("--resend and --all exclude each other; give one")

    async def act(office: PostOffice) -> None:
        if resend is not None:
            print_receipt(await store(office, ResendLetter(number=resend)), is_json=is_json)
        else:
            _list(office, is_whole=is_whole, is_json=is_json)

    with open_output():
        use_office(session, act)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_gone)
@session_option
@json_option
def sweep(*, names: tuple[str, ...], session: str | None, is_json: bool) -> None:
    """Move mail that nobody will read to the dead.

    That is the mail of all who have left the roster. Somebody who has only ended may be resumed and read it then; name
    them if they will not be.
    """

    async def act(office: PostOffice) -> None:
        rows = [(name, await bury_left_behind(office.files, office.dead, name)) for name in _whose(office, names)]
        if is_json:
            print_json([{"name": name, "buried": count} for name, count in rows])
            return
        if not rows:
            click.echo(f"nobody who has left session {office.session.id} has mail", err=True)
        for name, count in rows:
            letters = "letter is" if count == 1 else "letters are"
            click.echo(printable(f"{name}: {count:,} {letters} among the dead; `coterie mail dead` lists them"))

    with open_output():
        use_office(session, act)


def _list(office: PostOffice, *, is_whole: bool, is_json: bool) -> None:
    found = office.dead.history()
    shown = [buried for buried in found if is_whole or buried.resent is None]
    if is_json:
        print_json([_row(buried) for buried in shown])
        return
    if not shown:
        resent = f" that wait; --all shows the {len(found):,} that were sent again" if found else ""
        click.echo(f"session {office.session.id} has no dead letters{resent}", err=True)
    for buried in shown:
        click.echo(dead_text(buried, session=office.session.id))


def _row(buried: Buried) -> dict[str, object]:
    return {"number": buried.number, **msgspec.to_builtins(buried.letter), "resent": buried.resent}


def _whose(office: PostOffice, names: tuple[str, ...]) -> tuple[str, ...]:
    """Whose mail is swept. Raises `Refused` where nobody can say who has left."""
    if names:
        return names
    if not office.roster.path.exists():
        raise Refused(f"session {office.session.id} has no roster that says who has left; name whose mail to sweep")
    return tuple(find_left_behind(office.files))
