"""`coterie mail held` and `outgoing`: mail from and for other sessions that awaits a decision."""

import click

from coterie.mailbox.envelope import MessageId
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.mail_options import (
    complete_held,
    complete_outgoing,
    json_option,
    print_json,
    run_with_mail,
    session_option,
)
from coterie.orchestrator.cli.mail.message_text import message_text
from coterie.orchestrator.cli.mail.send import print_receipt, store_mail
from coterie.orchestrator.cli.output import open_output, sanitize
from coterie.orchestrator.control.requests import ReleaseHeldMessage


@click.command()
@click.option("--release", metavar="ID", shell_complete=complete_held, help="Let this one be delivered.")
@click.option("--drop", metavar="ID", shell_complete=complete_held, help="Move this one to the dead.")
@session_option
@json_option
def held(*, release: str | None, drop: str | None, session: str | None, is_json: bool) -> None:
    """List mail of other sessions that waits for you to decide."""
    if release is not None and drop is not None:
        raise click.UsageError("--release and --drop exclude each other; give one")

    async def act(office: SessionMail) -> None:
        if release is not None:
            print_receipt(await store_mail(office, ReleaseHeldMessage(id=MessageId(release))), is_json=is_json)
        elif drop is not None:
            await office.held.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            await _list_held(office, is_json=is_json)

    with open_output():
        run_with_mail(session, act)


@click.command()
@click.option("--drop", metavar="ID", shell_complete=complete_outgoing, help="Move this one to the dead.")
@session_option
@json_option
def outgoing(*, drop: str | None, session: str | None, is_json: bool) -> None:
    """List mail for other sessions that waits here until they listen."""

    async def act(office: SessionMail) -> None:
        if drop is not None:
            await office.bridge.outgoing.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            await _list_outgoing(office, is_json=is_json)

    with open_output():
        run_with_mail(session, act)


async def _list_held(office: SessionMail, *, is_json: bool) -> None:
    letters = await office.held.messages()
    if is_json:
        print_json(letters)
        return
    if not letters:
        click.echo(f"session {office.session.id} holds no mail", err=True)
    for letter in letters:
        click.echo(message_text(letter, session=office.session.id, now=office.clock.now()))


async def _list_outgoing(office: SessionMail, *, is_json: bool) -> None:
    letters = await office.bridge.outgoing.messages()
    if is_json:
        print_json([{"address": address, "envelope": letter} for address, letter in letters])
        return
    if not letters:
        click.echo(f"session {office.session.id} has no mail that waits for others", err=True)
    for address, letter in letters:
        click.echo(message_text(letter, session=office.session.id, now=office.clock.now(), address=address))


def _report_drop(id_: str, *, is_json: bool) -> None:
    if is_json:
        print_json({"dropped": id_})
    else:
        click.echo(sanitize(f"{id_} is among the dead; `coterie mail dead` lists them"))
