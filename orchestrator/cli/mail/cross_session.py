"""`coterie mail held` and `outgoing`: pending mail from and to other sessions."""

import click

from coterie.mailbox.envelope import MessageId
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.mail_options import (
    complete_held,
    complete_outgoing,
    json_option,
    run_with_mail,
)
from coterie.orchestrator.cli.mail.message_text import message_text
from coterie.orchestrator.cli.mail.send import print_receipt, store_mail
from coterie.orchestrator.cli.output import open_output, print_json, sanitize
from coterie.orchestrator.cli.shared_options import session_option
from coterie.orchestrator.control.requests import ReleaseHeldMessage


@click.command()
@click.option("--release", metavar="ID", shell_complete=complete_held, help="Deliver the message with this id.")
@click.option(
    "--drop", metavar="ID", shell_complete=complete_held, help="Do not deliver this message; move it to `mail dead`."
)
@session_option
@json_option
def held(*, release: str | None, drop: str | None, session: str | None, is_json: bool) -> None:
    """List held messages from other sessions.

    A held message is not delivered until you release it.
    """
    if release is not None and drop is not None:
        raise click.UsageError("--release and --drop cannot be used together; give one of them")

    async def act(mail: SessionMail) -> None:
        if release is not None:
            print_receipt(await store_mail(mail, ReleaseHeldMessage(id=MessageId(release))), is_json=is_json)
        elif drop is not None:
            await mail.held.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            await _list_held(mail, is_json=is_json)

    with open_output():
        run_with_mail(session, act)


@click.command()
@click.option(
    "--drop", metavar="ID", shell_complete=complete_outgoing, help="Do not send this message; move it to `mail dead`."
)
@session_option
@json_option
def outgoing(*, drop: str | None, session: str | None, is_json: bool) -> None:
    """List queued messages to other sessions. Each is sent when the other session runs."""

    async def act(mail: SessionMail) -> None:
        if drop is not None:
            await mail.bridge.outgoing.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            await _list_outgoing(mail, is_json=is_json)

    with open_output():
        run_with_mail(session, act)


async def _list_held(mail: SessionMail, *, is_json: bool) -> None:
    messages = await mail.held.messages()
    if is_json:
        print_json(messages)
        return
    if not messages:
        click.echo(f"session {mail.session.id} holds no messages", err=True)
    for message in messages:
        click.echo(message_text(message, session=mail.session.id, now=mail.clock.now()))


async def _list_outgoing(mail: SessionMail, *, is_json: bool) -> None:
    messages = await mail.bridge.outgoing.messages()
    if is_json:
        print_json([{"address": address, "envelope": message} for address, message in messages])
        return
    if not messages:
        click.echo(f"session {mail.session.id} has no queued messages for other sessions", err=True)
    for address, message in messages:
        click.echo(message_text(message, session=mail.session.id, now=mail.clock.now(), address=address))


def _report_drop(id_: str, *, is_json: bool) -> None:
    if is_json:
        print_json({"dropped": id_})
    else:
        click.echo(sanitize(f"dropped {id_}; `coterie mail dead` lists it"))
