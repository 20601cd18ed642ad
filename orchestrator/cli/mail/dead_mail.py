"""`coterie mail dead` and `sweep`: dead letters, and mail for agents that have ended."""

import click
import msgspec

from coterie.mailbox.dead_letters import DeadLetterRecord
from coterie.mailbox.transports.abandoned_mail import dead_letter_abandoned, find_abandoned
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.mail_options import (
    complete_dead,
    complete_ended_agent,
    json_option,
    print_json,
    run_with_mail,
    session_option,
)
from coterie.orchestrator.cli.mail.message_text import dead_letter_text
from coterie.orchestrator.cli.mail.send import print_receipt, store_mail
from coterie.orchestrator.cli.output import UsageRefused, open_output, sanitize
from coterie.orchestrator.control.requests import ResendDeadLetter


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

    async def act(office: SessionMail) -> None:
        if resend is not None:
            print_receipt(await store_mail(office, ResendDeadLetter(number=resend)), is_json=is_json)
        else:
            _list(office, is_whole=is_whole, is_json=is_json)

    with open_output():
        run_with_mail(session, act)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_ended_agent)
@session_option
@json_option
def sweep(*, names: tuple[str, ...], session: str | None, is_json: bool) -> None:
    """Move mail that nobody will read to the dead.

    That is the mail of all who have left the roster. Somebody who has only ended may be resumed and read it then; name
    them if they will not be.
    """

    async def act(office: SessionMail) -> None:
        rows = [
            (name, await dead_letter_abandoned(office.files, office.dead_letters, name))
            for name in _sweep_targets(office, names)
        ]
        if is_json:
            print_json([{"name": name, "buried": count} for name, count in rows])
            return
        if not rows:
            click.echo(f"nobody who has left session {office.session.id} has mail", err=True)
        for name, count in rows:
            letters = "letter is" if count == 1 else "letters are"
            click.echo(sanitize(f"{name}: {count:,} {letters} among the dead; `coterie mail dead` lists them"))

    with open_output():
        run_with_mail(session, act)


def _list(office: SessionMail, *, is_whole: bool, is_json: bool) -> None:
    found = office.dead_letters.history()
    shown = [buried for buried in found if is_whole or buried.resent is None]
    if is_json:
        print_json([_row(buried) for buried in shown])
        return
    if not shown:
        resent = f" that wait; --all shows the {len(found):,} that were sent again" if found else ""
        click.echo(f"session {office.session.id} has no dead letters{resent}", err=True)
    for buried in shown:
        click.echo(dead_letter_text(buried, session=office.session.id))


def _row(buried: DeadLetterRecord) -> dict[str, object]:
    return {"number": buried.number, **msgspec.to_builtins(buried.letter), "resent": buried.resent}


def _sweep_targets(office: SessionMail, names: tuple[str, ...]) -> tuple[str, ...]:
    """Whose mail is swept. Raises `UsageRefused` where nobody can say who has left."""
    if names:
        return names
    if not office.roster.path.exists():
        raise UsageRefused(
            f"session {office.session.id} has no roster that says who has left; name whose mail to sweep"
        )
    return tuple(find_abandoned(office.files))
