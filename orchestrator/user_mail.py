"""Mail that the user sends, sends again or releases: stored by the root of the session, or by a shell if there is none.

What the root stores is signed. What a shell stores is not, and is believed when the next root begins.
"""

import attrs

from coterie.mailbox.address import RESERVED, OtherSession, Socket, parse_address
from coterie.mailbox.bridge import BridgeReceipt, BridgeUnusable, NotHeld, NotWaiting
from coterie.mailbox.contract import DeadLetter, Receipt
from coterie.mailbox.dead_letters import LetterNumber
from coterie.mailbox.envelope import Envelope, Recipient
from coterie.mailbox.errors import MailboxError, SendRefused
from coterie.mailbox.ids import MessageId
from coterie.mailbox.left_behind import StillThere
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.router import TIME_TO_LIVE, Draft
from coterie.orchestrator.control_socket.requests import (
    Fate,
    Fates,
    MailAnswer,
    MailRequest,
    NotStored,
    PostMail,
    ReleaseLetter,
    ResendLetter,
)
from coterie.orchestrator.post_office import PostOffice


@attrs.define(eq=False)
class NotResendable(MailboxError):
    """A dead letter that cannot be sent again."""

    number: LetterNumber
    reason: str

    def __str__(self) -> str:
        return self.reason


FOR_USER = (SendRefused, NotHeld, NotWaiting, StillThere, BridgeUnusable, NotResendable)
"""What the user must mend; other errors of mail are the machine's."""


async def serve_mail(office: PostOffice, request: MailRequest) -> MailAnswer:
    """Do what is asked, and say what became of it."""
    try:
        return Fates(fates=await store_mail(office, request))
    except MailboxError as exc:
        return NotStored(reason=str(exc), is_for_user=isinstance(exc, FOR_USER))
    except OSError as exc:
        return NotStored(reason=f"{exc.filename or office.directory}: {exc.strerror}", is_for_user=False)


async def store_mail(office: PostOffice, request: MailRequest) -> tuple[Fate, ...]:
    """Do what is asked, for each recipient. Raises `MailboxError` and `OSError`; then nothing is stored."""
    match request:
        case PostMail():
            return await _post(office, request)
        case ResendLetter():
            return (_fate(await _resend(office, LetterNumber(request.number))),)
        case ReleaseLetter():
            return (_fate(await office.held.release(request.id, office.take_in)),)


def is_for_others(address: str) -> bool:
    """Whether that is another session. Raises `NameInvalid`."""
    return isinstance(parse_address(address), Socket | OtherSession)


async def _post(office: PostOffice, request: PostMail) -> tuple[Fate, ...]:
    if is_for_others(request.to):
        # Of a session that does not run nobody else forwards; and what waits there must come first.
        await office.bridge.forward()
    draft = Draft(to=request.to, body=request.body, kind=request.kind, summary=request.summary)
    posted = await office.router().send(office.human(), draft)
    return tuple(
        Fate(recipient=one.recipient, refusal=str(one.refusal))
        if one.receipt is None
        else _fate(one.receipt, one.recipient)
        for one in posted
    )


def _fate(receipt: Receipt, recipient: str | None = None) -> Fate:
    name = recipient or receipt.recipient
    if isinstance(receipt, BridgeReceipt):
        return Fate(recipient=name, abroad=receipt)
    return Fate(recipient=name, stored=receipt)


async def _resend(office: PostOffice, number: LetterNumber) -> Receipt:
    letter = _find(office, number)
    _check_words(number, letter)
    assert letter.envelope is not None
    id_ = office.dead.begin_resending(number, office.clock.now())
    receipt = await _send(office, letter.mailbox, _revive(letter.envelope, id_, office.clock.now()))
    office.dead.finish_resending(number, id_, office.clock.now())
    return receipt


def _find(office: PostOffice, number: LetterNumber) -> DeadLetter:
    buried = next((buried for buried in office.dead.history() if buried.number == number), None)
    if buried is None:
        raise NotResendable(number, f"there is no dead letter {number}; `coterie mail dead` lists them")
    if buried.resent is not None:
        raise NotResendable(number, f"dead letter {number} was sent again already, as {buried.resent.id}")
    return buried.letter


def _check_words(number: LetterNumber, letter: DeadLetter) -> None:
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


async def _send(office: PostOffice, mailbox: str, envelope: Envelope) -> Receipt:
    # A letter that died on its way to another session has that session for its mailbox.
    if mailbox not in RESERVED and isinstance(address := parse_address(mailbox), Socket | OtherSession):
        return await office.bridge.send(envelope, address)
    return await office.files.send(office.sign(envelope))
