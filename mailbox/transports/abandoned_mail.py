"""Mail of recipients that have ended for good: found, and moved to the dead letters."""

from collections.abc import Mapping

import attrs
import trio

from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Backlog, DeadLetter, Delivery, Inbox, Member, Roster
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.errors import MailboxError, MailboxFailed, NameInvalid
from coterie.mailbox.roster import find_member
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.file.transport import FileTransport

BATCH = 100
"""Letters that are buried before they are acknowledged together."""

_NO_START = 0
"""Of a reader that is no start of the name: those count from 1."""


@attrs.define(eq=False)
class RecipientActive(MailboxError):
    """Whose mail was to be buried is there to read it."""

    name: str
    state: str

    def __str__(self) -> str:
        return f"{self.name!r} is {self.state} and reads its own mail"


def find_abandoned(transport: FileTransport) -> dict[str, Backlog]:
    """The mailboxes of names that are not on the roster any more, and what waits there; empty ones are left out.

    Nothing is taken, and nobody is locked out. Raises `MailboxError` if the roster or a mailbox cannot be read.
    """
    members = transport.roster.members()
    try:
        names = [entry.name for entry in sorted(transport.directory.glob("*/")) if _is_name(entry.name)]
        left = [name for name in names if name not in members and segment_numbers(transport.directory / name)]
    except OSError as exc:
        raise MailboxFailed(str(transport.directory), str(exc)) from exc
    found = {name: attrs.evolve(transport, roster=_EndedRoster(name)).backlog(name) for name in left}
    return {name: backlog for name, backlog in found.items() if backlog.messages}


async def dead_letter_abandoned(transport: FileTransport, dead: DeadLetters, name: str) -> int:
    """Move what waits for *name*, who has left the roster or has ended for good, to *dead*; the number of letters.

    Meanwhile it is the one reader of the mailbox. A letter is stored among the dead before it leaves the mailbox; if
    this is killed or cancelled in between it is known again by its bytes the next time, and not buried twice. What was
    sent to a new start of the name is not touched. Raises `RecipientActive`, `MailboxBusy` if another process reads the
    mailbox, `NameInvalid`, `UnknownRecipient` if nobody had the name, and `MailboxFailed`.
    """
    directory = transport.directory / check_name(name)
    if not directory.is_dir():
        find_member(transport.roster, name)
        return 0
    _check_gone(transport.roster, name)
    grave = _DeadLetterWriter(name, dead)
    reading = attrs.evolve(transport, roster=_EndedRoster(name), store_dead_letter=grave.add)
    async with reading.open_inbox(name, _NO_START) as inbox:
        # Read once nobody else can bury from here, so that all who did are known.
        await trio.to_thread.run_sync(grave.load_sync)
        while deliveries := inbox.take_nowait(BATCH):
            # Whoever joined in the meantime gets what was taken. Before it joined nothing could be sent to it.
            _check_gone(transport.roster, name)
            await _dead_letter_all(deliveries, inbox, grave, transport.clock.now())
    return grave.count


async def _dead_letter_all(deliveries: list[Delivery], inbox: Inbox, grave: "_DeadLetterWriter", now: float) -> None:
    try:
        for delivery in deliveries:
            grave.add(_to_dead_letter(grave.name, delivery, now))
    except OSError as exc:
        raise MailboxFailed(grave.name, f"cannot bury: {exc.strerror}") from exc
    await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])


@attrs.define(eq=False)
class _DeadLetterWriter:
    """Where the mail of one mailbox goes, once."""

    name: str
    _dead: DeadLetters
    count: int = attrs.field(default=0, init=False)
    _known: set[bytes] = attrs.field(factory=set, init=False)

    def load_sync(self) -> None:
        """Learn what lies there. Raises `MailboxFailed`."""
        try:
            self._known = {one.letter.raw for one in self._dead.history() if one.letter.mailbox == self.name}
        except OSError as exc:
            raise MailboxFailed(self.name, f"cannot read the dead letters: {exc.strerror}") from exc

    def add(self, letter: DeadLetter) -> None:
        """As `StoreDeadLetter`, for a letter that is not known."""
        if letter.reason == "stale_incarnation":  # it was for a start, and there is none at all
            letter = attrs.evolve(letter, reason="recipient_ended", detail=_detail(self.name))
        if letter.raw not in self._known:
            self._dead.add(letter)
        self.count += 1


@attrs.frozen
class _EndedRoster:
    """A roster with one member, who has ended: a transport opens the mailboxes of members only."""

    name: str

    def members(self) -> Mapping[str, Member]:
        """As `Roster.members`."""
        return {self.name: Member(name=self.name, incarnation=_NO_START, state="ended")}


def _check_gone(roster: Roster, name: str) -> None:
    member = roster.members().get(name)
    if member is not None and member.state != "ended":
        raise RecipientActive(name, member.state)


def _to_dead_letter(name: str, delivery: Delivery, now: float) -> DeadLetter:
    envelope = delivery.envelope
    return DeadLetter(
        reason="recipient_ended",
        detail=_detail(name),
        mailbox=name,
        at=now,
        envelope=envelope,
        raw=envelope.to_bytes(),
    )


def _detail(name: str) -> str:
    return f"{name!r} has gone, and did not read it"


def _is_name(text: str) -> bool:
    try:
        check_name(text)
    except NameInvalid:
        return False
    return True
