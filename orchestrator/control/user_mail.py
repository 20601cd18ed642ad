"""Mail requests of the user: send a message, resend an undeliverable one (dead letter), release a held one.

While a root (supervisor process) runs, it stores the messages and signs them. Otherwise a command stores them without a
signature, and the next root trusts all mail that waits when it starts.
"""

import attrs

from coterie.mailbox.address import RESERVED, OtherSession, Socket, parse_address
from coterie.mailbox.contract import BridgeReceipt, DeadLetter, Receipt
from coterie.mailbox.dead_letters import DeadLetterNumber
from coterie.mailbox.envelope import Envelope, Recipient
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
    """A dead letter (an undeliverable message) cannot be sent again, or does not exist."""

    reason: str


USER_ERRORS = (SendRefused, NoHeldMessage, NotInOutbox, RecipientActive, BridgeUnusable, NotResendable)
"""Errors that the user must fix; other mail errors are errors of the machine."""


async def handle_mail_request(mail: SessionMail, request: MailRequest) -> MailAnswer:
    """Handle a mail request of the user. Return the status for each recipient; after an error, `NotStored`."""
    try:
        return DeliveryStatuses(fates=await store_user_mail(mail, request))
    except MailboxError as exc:
        return NotStored(reason=str(exc), is_for_user=isinstance(exc, USER_ERRORS))
    except OSError as exc:
        return NotStored(reason=f"{exc.filename or mail.directory}: {exc.strerror}", is_for_user=False)


async def store_user_mail(mail: SessionMail, request: MailRequest) -> tuple[DeliveryStatus, ...]:
    """Handle a mail request of the user, and return the delivery status for each recipient.

    After an error, some recipients may have the message nevertheless. Raises `MailboxError` and `OSError`.
    """
    match request:
        case SendMail():
            return await _send_new(mail, request)
        case ResendDeadLetter():
            return (_delivery_status(await _resend(mail, DeadLetterNumber(request.number))),)
        case ReleaseHeldMessage():
            return (_delivery_status(await mail.held.release(request.id, mail.accept_inbound)),)


def is_other_session(address: str) -> bool:
    """Return True if the recipient *address* is in another session. Raises `NameInvalid`."""
    return isinstance(parse_address(address), Socket | OtherSession)


async def _send_new(mail: SessionMail, request: SendMail) -> tuple[DeliveryStatus, ...]:
    if is_other_session(request.to):
        # Without a root no forwarder runs, and earlier messages in the outbox must be delivered first.
        await mail.bridge.forward()
    draft = OutgoingMessage(to=request.to, body=request.body, kind=request.kind, summary=request.summary)
    sent = await mail.router().send(mail.human_sender(), draft)
    return tuple(
        DeliveryStatus(recipient=one.recipient, refusal=str(one.refusal))
        if one.receipt is None
        else _delivery_status(one.receipt, one.recipient)
        for one in sent
    )


def _delivery_status(receipt: Receipt, recipient: str | None = None) -> DeliveryStatus:
    name = recipient or receipt.recipient
    if isinstance(receipt, BridgeReceipt):
        return DeliveryStatus(recipient=name, abroad=receipt)
    return DeliveryStatus(recipient=name, stored=receipt)


async def _resend(mail: SessionMail, number: DeadLetterNumber) -> Receipt:
    letter, envelope = _find_resendable(mail, number)
    now = mail.clock.now()
    id_ = mail.dead_letters.begin_resend(number, now)
    # A new message with the same content, because recipients ignore the old id.
    copy = attrs.evolve(
        envelope,
        id=id_,
        recipient=Recipient(name=envelope.recipient.name),
        created=now,
        expires=None if envelope.expires is None else now + TIME_TO_LIVE,
        mac=None,
    )
    receipt = await _send(mail, letter.mailbox, copy)
    mail.dead_letters.finish_resend(number, id_, mail.clock.now())
    return receipt


def _find_resendable(mail: SessionMail, number: DeadLetterNumber) -> tuple[DeadLetter, Envelope]:
    """Return the undeliverable message *number*. Raises `NotResendable` if unknown, or not to be sent again."""
    found = next((each for each in mail.dead_letters.history() if each.number == number), None)
    if found is None:
        raise NotResendable(f"there is no dead letter {number}; `coterie mail dead` lists them")
    if found.resent is not None:
        raise NotResendable(f"dead letter {number} was sent again as {found.resent.id}; see `coterie mail dead --all`")
    envelope = found.letter.envelope
    if envelope is None:
        raise NotResendable(f"dead letter {number} is not a valid message; `coterie mail dead --json` shows its bytes")
    if found.letter.reason == "bad_mac":
        problem = f"the sender {envelope.sender.name!r} of dead letter {number} is not verified"
        raise NotResendable(f"{problem}; if you trust its text, send that with `coterie mail send`")
    if envelope.kind in AUTHORITY:
        instead = "`coterie stop`" if envelope.kind == "shutdown_request" else "`coterie approvals`"
        raise NotResendable(f"dead letter {number} is a {envelope.kind}, not allowed as mail; use {instead}")
    return found.letter, envelope


async def _send(mail: SessionMail, mailbox: str, envelope: Envelope) -> Receipt:
    # A dead letter to another session has the address of that session as its mailbox.
    if mailbox not in RESERVED and isinstance(address := parse_address(mailbox), Socket | OtherSession):
        return await mail.bridge.send(envelope, address)
    return await mail.files.send(mail.sign(envelope))
