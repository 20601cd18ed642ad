"""Mail of the user: messages sent, dead letters resent, held messages released.

What the root stores is signed. What a shell stores is not, and is believed when the next root begins.
"""

import attrs

from coterie.mailbox.address import RESERVED, OtherSession, Socket, parse_address
from coterie.mailbox.contract import BridgeReceipt, DeadLetter, Receipt
from coterie.mailbox.dead_letters import DeadLetterNumber
from coterie.mailbox.envelope import Envelope, MessageId, Recipient
from coterie.mailbox.errors import MailboxError, SendRefused
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.router import TIME_TO_LIVE, OutgoingMessage
from coterie.mailbox.transports.abandoned_mail import RecipientActive
from coterie.mailbox.transports.bridge.held_mail import NoHeldMessage
from coterie.mailbox.transports.bridge.outbox import NotInOutbox
from coterie.mailbox.transports.bridge.socket_path import BridgeUnusable
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.control.requests import (
    DeliveryStatus,
    DeliveryStatuses,
    MailAnswer,
    MailRequest,
    NotStored,
    ReleaseHeldMessage,
    ResendDeadLetter,
    SendMail,
)


@attrs.define(eq=False)
class NotResendable(MailboxError):
    """A dead letter that cannot be sent again."""

    number: DeadLetterNumber
    reason: str

    def __str__(self) -> str:
        return self.reason


USER_ERRORS = (SendRefused, NoHeldMessage, NotInOutbox, RecipientActive, BridgeUnusable, NotResendable)
"""What the user must mend; other errors of mail are the machine's."""


async def handle_mail_request(office: SessionMail, request: MailRequest) -> MailAnswer:
    """Do what is asked, and say what became of it."""
    try:
        return DeliveryStatuses(fates=await store_user_mail(office, request))
    except MailboxError as exc:
        return NotStored(reason=str(exc), is_for_user=isinstance(exc, USER_ERRORS))
    except OSError as exc:
        return NotStored(reason=f"{exc.filename or office.directory}: {exc.strerror}", is_for_user=False)


async def store_user_mail(office: SessionMail, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    """Do what is asked, for each recipient. Raises `MailboxError` and `OSError`; then nothing is stored."""
    match request:
        case SendMail():
            return await _send_new(office, request)
        case ResendDeadLetter():
            return (_delivery_status(await _resend(office, DeadLetterNumber(request.number))),)
        case ReleaseHeldMessage():
            return (_delivery_status(await office.held.release(request.id, office.accept_inbound)),)


def is_other_session(address: str) -> bool:
    """Whether that is another session. Raises `NameInvalid`."""
    return isinstance(parse_address(address), Socket | OtherSession)


async def _send_new(office: SessionMail, request: SendMail) -> tuple[DeliveryStatus, ...]:
    if is_other_session(request.to):
        # Of a session that does not run nobody else forwards; and what waits there must come first.
        await office.bridge.forward()
    draft = OutgoingMessage(to=request.to, body=request.body, kind=request.kind, summary=request.summary)
    posted = await office.router().send(office.human_sender(), draft)
    return tuple(
        DeliveryStatus(recipient=one.recipient, refusal=str(one.refusal))
        if one.receipt is None
        else _delivery_status(one.receipt, one.recipient)
        for one in posted
    )


def _delivery_status(receipt: Receipt, recipient: str | None = None) -> DeliveryStatus:
    name = recipient or receipt.recipient
    if isinstance(receipt, BridgeReceipt):
        return DeliveryStatus(recipient=name, abroad=receipt)
    return DeliveryStatus(recipient=name, stored=receipt)


async def _resend(office: SessionMail, number: DeadLetterNumber) -> Receipt:
    letter = _find(office, number)
    _check_resendable(number, letter)
    assert letter.envelope is not None
    id_ = office.dead_letters.begin_resend(number, office.clock.now())
    receipt = await _send(office, letter.mailbox, _revive(letter.envelope, id_, office.clock.now()))
    office.dead_letters.finish_resend(number, id_, office.clock.now())
    return receipt


def _find(office: SessionMail, number: DeadLetterNumber) -> DeadLetter:
    buried = next((buried for buried in office.dead_letters.history() if buried.number == number), None)
    if buried is None:
        raise NotResendable(number, f"there is no dead letter {number}; `coterie mail dead` lists them")
    if buried.resent is not None:
        raise NotResendable(number, f"dead letter {number} was sent again already, as {buried.resent.id}")
    return buried.letter


def _check_resendable(number: DeadLetterNumber, letter: DeadLetter) -> None:
    """Raise `NotResendable` for what may not be said again."""
    envelope = letter.envelope
    if envelope is None:
        raise NotResendable(number, f"dead letter {number} is no message; `coterie mail dead --json` shows its bytes")
    if letter.reason == "bad_mac":
        whose = f"nobody proved that {envelope.sender.name!r} wrote dead letter {number}"
        raise NotResendable(number, f"{whose}; if it is true, say it with `mail send`")
    if envelope.kind in AUTHORITY:
        reason = f"dead letter {number} is a {envelope.kind}: mail through files carries no authority"
        raise NotResendable(number, reason)


def _revive(envelope: Envelope, id_: MessageId, now: float) -> Envelope:
    """A message that says the same; a new one, because the id of the old is settled."""
    return attrs.evolve(
        envelope,
        id=id_,
        recipient=Recipient(name=envelope.recipient.name),
        created=now,
        expires=None if envelope.expires is None else now + TIME_TO_LIVE,
        mac=None,
    )


async def _send(office: SessionMail, mailbox: str, envelope: Envelope) -> Receipt:
    # A letter that died on its way to another session has that session for its mailbox.
    if mailbox not in RESERVED and isinstance(address := parse_address(mailbox), Socket | OtherSession):
        return await office.bridge.send(envelope, address)
    return await office.files.send(office.sign(envelope))
