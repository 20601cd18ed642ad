"""Functions that find the mail of recipients that have ended permanently, and move it to the dead letters."""

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
"""Number of messages that are stored as dead letters before they are acknowledged together."""

_NO_INCARNATION = 0
"""Incarnation number under which this module reads a mailbox. No agent has it, because agents count from 1."""


@attrs.define(eq=False)
class RecipientActive(MailboxError):
    """The mail of a recipient that has not ended cannot be moved to the dead letters."""

    name: str
    state: str

    def __str__(self) -> str:
        return f"the mail of {self.name!r} was not moved, because {self.name!r} is {self.state} and can still read it"


def find_abandoned(transport: FileTransport) -> dict[str, Backlog]:
    """Return number and size of the pending messages of each mailbox whose name is no longer on the roster.

    Empty mailboxes are left out. The messages stay in the mailboxes, and no mailbox is locked. Raises `MailboxError` if
    the roster or a mailbox cannot be read.
    """
    members = transport.roster.members()
    try:
        names = [entry.name for entry in sorted(transport.directory.glob("*/")) if _is_name(entry.name)]
        abandoned = [name for name in names if name not in members and segment_numbers(transport.directory / name)]
    except OSError as exc:
        raise MailboxFailed(str(transport.directory), f"the mail cannot be listed: {exc}") from exc
    found = {name: attrs.evolve(transport, roster=_ended_roster(name)).backlog(name) for name in abandoned}
    return {name: backlog for name, backlog in found.items() if backlog.messages}


async def dead_letter_abandoned(transport: FileTransport, dead: DeadLetters, name: str) -> int:
    """Move the mail of *name*, which has left the roster or ended, to *dead*. Return the number of messages.

    During the call this process is the only reader of the mailbox. A message is stored as a dead letter before it is
    removed from the mailbox. After a crash or cancellation between these steps, the next call recognises the message by
    its bytes, so it is stored only once. Raises `RecipientActive` if *name* has not ended or starts again during the
    call, `MailboxBusy` if another process reads the mailbox, `UnknownRecipient` if *name* is neither on the roster nor
    has a mailbox, `NameInvalid` and `MailboxFailed`.
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
                raise MailboxFailed(name, f"cannot store a dead letter: {exc.strerror}; check the disk") from exc
            await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])
    return writer.count


@attrs.define(eq=False)
class _DeadLetterWriter:
    """Stores the mail of one mailbox as dead letters, without those that an earlier call has stored already."""

    name: str
    _dead: DeadLetters
    count: int = attrs.field(default=0, init=False)
    _known: set[bytes] = attrs.field(factory=set, init=False)

    def load_sync(self) -> None:
        """Load the dead letters that are stored already, so that `add` skips them. Raises `MailboxFailed`."""
        try:
            self._known = {record.letter.raw for record in self._dead.history() if record.letter.mailbox == self.name}
        except OSError as exc:
            raise MailboxFailed(self.name, f"cannot read dead letters: {exc.strerror}; check the disk") from exc

    def add(self, letter: DeadLetter) -> None:
        """Count *letter*, and store it if it is new. Its reason `stale_incarnation` becomes `recipient_ended`."""
        if letter.reason == "stale_incarnation":  # addressed to one incarnation, and now there is none
            letter = attrs.evolve(letter, reason="recipient_ended", detail=_detail(self.name))
        if letter.raw not in self._known:
            self._dead.add(letter)
        self.count += 1


def _ended_roster(name: str) -> LocalRoster:
    """Return a roster with *name* as an ended member, because a transport opens only the mailboxes of members."""
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
