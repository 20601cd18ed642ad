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
from coterie.orchestrator.cli.output import open_output, print_result, sanitize
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
            messages, own = await mail.held.messages(), mail.session.id
            texts = (message_text(message, session=own, now=mail.clock.now()) for message in messages)
            print_result(messages, texts, is_json=is_json, empty=f"session {own} holds no messages")

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
            return
        messages, own = await mail.bridge.outgoing.messages(), mail.session.id
        facts = [{"address": address, "envelope": message} for address, message in messages]
        texts = (message_text(message, session=own, now=mail.clock.now(), address=to) for to, message in messages)
        empty = f"session {own} has no queued messages for other sessions"
        print_result(facts, texts, is_json=is_json, empty=empty)

    with open_output():
        run_with_mail(session, act)


def _report_drop(id_: str, *, is_json: bool) -> None:
    print_result({"dropped": id_}, [sanitize(f"dropped {id_}; `coterie mail dead` lists it")], is_json=is_json)
