"""Mail of recipients that have ended permanently: finds it and moves it to the dead letters."""

import attrs
import trio

from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Backlog, DeadLetter, Member, Roster
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.errors import MailboxError, MailboxFailed, NameInvalid
from coterie.mailbox.roster import LocalRoster, RosterState, find_member
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.file.transport import FileTransport

BATCH = 100
"""Number of messages that are dead-lettered before they are acknowledged together."""

_NO_INCARNATION = 0
"""Incarnation of this reader; incarnations of agents count from 1."""


@attrs.define(eq=False)
class RecipientActive(MailboxError):
    """Mail of a running recipient cannot be dead-lettered."""

    name: str
    state: str

    def __str__(self) -> str:
        return f"{self.name!r} is {self.state} and reads its own mail"


def find_abandoned(transport: FileTransport) -> dict[str, Backlog]:
    """Return the backlogs of mailboxes whose names are no longer on the roster; empty mailboxes are left out.

    Takes no message and no lock. Raises `MailboxError` if the roster or a mailbox cannot be read.
    """
    members = transport.roster.members()
    try:
        names = [entry.name for entry in sorted(transport.directory.glob("*/")) if _is_name(entry.name)]
        abandoned = [name for name in names if name not in members and segment_numbers(transport.directory / name)]
    except OSError as exc:
        raise MailboxFailed(str(transport.directory), str(exc)) from exc
    found = {name: attrs.evolve(transport, roster=_ended_roster(name)).backlog(name) for name in abandoned}
    return {name: backlog for name, backlog in found.items() if backlog.messages}


async def dead_letter_abandoned(transport: FileTransport, dead: DeadLetters, name: str) -> int:
    """Move the mail of *name*, which has left the roster or ended permanently, to *dead*; return the number moved.

    During the call this process is the only reader of the mailbox. A message is stored as a dead letter before it
    leaves the mailbox. After a crash or cancellation between the two, the next call recognises it by its bytes and
    stores it only once. Mail for a new incarnation of the name is left alone. Raises `RecipientActive`, `MailboxBusy`
    if another process reads the mailbox, `NameInvalid`, `UnknownRecipient` if the name was never used, and
    `MailboxFailed`.
    """
    directory = transport.directory / check_name(name)
    if not directory.is_dir():
        find_member(transport.roster, name)
        return 0
    _check_ended(transport.roster, name)
    writer = _DeadLetterWriter(name, dead)
    reader = attrs.evolve(transport, roster=_ended_roster(name), store_dead_letter=writer.add)
    async with reader.open_inbox(name, _NO_INCARNATION) as inbox:
        # Read under the lock, so that earlier moves to dead letters are visible.
        await trio.to_thread.run_sync(writer.load_sync)
        while deliveries := inbox.take_nowait(BATCH):
            # A recipient that joined since then gets the messages just taken. Before it joined, nothing could be sent
            # to it.
            _check_ended(transport.roster, name)
            now = transport.clock.now()
            try:
                for delivery in deliveries:
                    writer.add(DeadLetter.of(delivery.envelope, "recipient_ended", _detail(name), name, now))
            except OSError as exc:
                raise MailboxFailed(name, f"cannot store a dead letter: {exc.strerror}") from exc
            await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])
    return writer.count


@attrs.define(eq=False)
class _DeadLetterWriter:
    """Stores the dead letters of one mailbox, each once."""

    name: str
    _dead: DeadLetters
    count: int = attrs.field(default=0, init=False)
    _known: set[bytes] = attrs.field(factory=set, init=False)

    def load_sync(self) -> None:
        """Load the dead letters that are stored already. Raises `MailboxFailed`."""
        try:
            self._known = {record.letter.raw for record in self._dead.history() if record.letter.mailbox == self.name}
        except OSError as exc:
            raise MailboxFailed(self.name, f"cannot read the dead letters: {exc.strerror}") from exc

    def add(self, letter: DeadLetter) -> None:
        """Store *letter* unless it is stored already; a `StoreDeadLetter`."""
        if letter.reason == "stale_incarnation":  # addressed to one incarnation, and now there is none
            letter = attrs.evolve(letter, reason="recipient_ended", detail=_detail(self.name))
        if letter.raw not in self._known:
            self._dead.add(letter)
        self.count += 1


def _ended_roster(name: str) -> LocalRoster:
    """Return a roster with one ended member, because a transport opens only the mailboxes of members."""
    return LocalRoster(RosterState(members={name: Member(name=name, incarnation=_NO_INCARNATION, state="ended")}))


def _check_ended(roster: Roster, name: str) -> None:
    member = roster.members().get(name)
    if member is not None and member.state != "ended":
        raise RecipientActive(name, member.state)


def _detail(name: str) -> str:
    return f"{name!r} has ended and did not read it"


def _is_name(text: str) -> bool:
    try:
        check_name(text)
    except NameInvalid:
        return False
    return True
