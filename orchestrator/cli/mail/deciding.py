"""`coterie mail dead` and `held`: mail that nobody gets before the user decides."""

import attrs
import click
import msgspec

from coterie.mailbox.address import OtherSession, Socket, parse_address
from coterie.mailbox.contract import DeadLetter, Receipt
from coterie.mailbox.dead_letters import LetterNumber
from coterie.mailbox.envelope import Envelope, Recipient
from coterie.mailbox.ids import MessageId, new_message_id
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.router import TIME_TO_LIVE
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.mail.completion import complete_dead, complete_held
from coterie.orchestrator.cli.mail.office import json_option, print_json, session_option, use_office
from coterie.orchestrator.cli.mail.sending import receipt_text
from coterie.orchestrator.cli.mail.wording import dead_text, message_text
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.post_office import PostOffice


@click.command()
@click.option("--resend", type=int, metavar="NUMBER", shell_complete=complete_dead, help="Send this one again.")
@session_option
@json_option
def dead(*, resend: int | None, session: str | None, is_json: bool) -> None:
    """List mail that could not be delivered, or send it again.

    What is sent again is a new message with the old sender and words; the dead letter stays on the list.
    """

    async def act(office: PostOffice) -> None:
        if resend is not None:
            _report(await _resend(office, LetterNumber(resend)), is_json=is_json)
        else:
            _list_dead(office, is_json=is_json)

    with open_output():
        use_office(session, act)


@click.command()
@click.option("--release", metavar="ID", shell_complete=complete_held, help="Let this one be delivered.")
@click.option("--drop", metavar="ID", shell_complete=complete_held, help="Move this one to the dead.")
@session_option
@json_option
def held(*, release: str | None, drop: str | None, session: str | None, is_json: bool) -> None:
    """List mail of other sessions that waits for you to decide."""
    if release is not None and drop is not None:
        raise click.UsageError("--release and --drop exclude each other; give one")

    async def act(office: PostOffice) -> None:
        if release is not None:
            _report(await office.held.release(MessageId(release), office.files.send), is_json=is_json)
        elif drop is not None:
            await office.held.drop(MessageId(drop))
            _report_drop(drop, is_json=is_json)
        else:
            await _list_held(office, is_json=is_json)

    with open_output():
        use_office(session, act)


def _list_dead(office: PostOffice, *, is_json: bool) -> None:
    letters = office.dead.letters()
    if is_json:
        print_json([{"number": number, **msgspec.to_builtins(letter)} for number, letter in letters])
        return
    if not letters:
        click.echo(f"session {office.session.id} has no dead letters", err=True)
    for number, letter in letters:
        click.echo(dead_text(number, letter, session=office.session.id))


async def _list_held(office: PostOffice, *, is_json: bool) -> None:
    letters = await office.held.letters()
    if is_json:
        print_json(letters)
        return
    if not letters:
        click.echo(f"session {office.session.id} holds no mail", err=True)
    for letter in letters:
        click.echo(message_text(letter, session=office.session.id, now=office.clock.now()))


async def _resend(office: PostOffice, number: LetterNumber) -> Receipt:
    letter = dict(office.dead.letters()).get(number)
    if letter is None:
        raise Refused(f"there is no dead letter {number}; `coterie mail dead` lists them")
    envelope = _revive(number, letter, office.clock.now())
    # A letter that died on its way to another session has that session for its mailbox.
    address = parse_address(letter.mailbox)
    if isinstance(address, Socket | OtherSession):
        return await office.bridge.send(envelope, address)
    return await office.files.send(envelope)


def _revive(number: LetterNumber, letter: DeadLetter, now: float) -> Envelope:
    """A message that says the same; a new one, because the id of the old is settled. Raises `Refused`."""
    envelope = letter.envelope
    if envelope is None:
        raise Refused(f"dead letter {number} is no message; `coterie mail dead --json` shows its bytes")
    if letter.reason == "bad_mac":
        name = envelope.sender.name
        raise Refused(f"nobody proved that {name!r} wrote dead letter {number}; if it is true, say it with `mail send`")
    if envelope.kind in AUTHORITY:
        raise Refused(f"dead letter {number} is a {envelope.kind}: mail through files carries no authority")
    return attrs.evolve(
        envelope,
        id=new_message_id(),
        recipient=Recipient(name=envelope.recipient.name),
        created=now,
        expires=None if envelope.expires is None else now + TIME_TO_LIVE,
        mac=None,
    )


def _report(receipt: Receipt, *, is_json: bool) -> None:
    if is_json:
        print_json(receipt)
    else:
        click.echo(printable(receipt_text(receipt.recipient, receipt)))


def _report_drop(id_: str, *, is_json: bool) -> None:
    if is_json:
        print_json({"dropped": id_})
    else:
        click.echo(printable(f"{id_} is among the dead; `coterie mail dead` lists them"))
