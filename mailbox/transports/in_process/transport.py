"""In-process transport: mail between agents of the same process, in memory; it is lost when the process ends."""

import itertools
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Collection, Container
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import Backlog, Delivery, Inbox, Keys, MailLimits, Receipt, Roster, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxBusy, MailboxFailed, MailboxFull, MessageTooLarge, RecipientEnded
from coterie.mailbox.fault_points import FaultPoint, trigger
from coterie.mailbox.policy import NEVER_WAKES
from coterie.mailbox.roster import find_member
from coterie.mailbox.validation import MessageValidator

REMEMBERED = 4096
"""Number of newest acknowledged message ids that a mailbox remembers; a copy of an older message is delivered again."""


@attrs.frozen(kw_only=True)
class _Item:
    envelope: Envelope
    size: int
    is_again: bool = False


@attrs.define(eq=False)
class _Mailbox:
    """Mail of one recipient in memory: waiting messages, and older ones that were taken but not acknowledged."""

    waiting: deque[_Item] = attrs.field(factory=deque)
    taken: dict[MessageId, _Item] = attrs.field(factory=dict)
    """Maps ids to messages that the current reader has taken and not yet acknowledged, oldest first."""
    acknowledged: OrderedDict[MessageId, int] = attrs.field(factory=OrderedDict)
    """Maps the id of an acknowledged message to its reader's number; 0 if dropped because the transcript has it."""
    readers: int = 0
    """Number of times that the mailbox was opened for reading, which is also the number of the current reader."""
    bytes: int = 0
    has_reader: bool = False
    arrival: trio.Event = attrs.field(factory=trio.Event)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.taken)

    def put(self, item: _Item) -> None:
        self.waiting.append(item)
        self.bytes += item.size
        self.arrival.set()
        self.arrival = trio.Event()

    def drop_first(self) -> None:
        self.bytes -= self.waiting.popleft().size

    def add_acknowledged(self, id_: MessageId, reader: int) -> None:
        self.acknowledged[id_] = reader
        if len(self.acknowledged) > REMEMBERED:
            self.acknowledged.popitem(last=False)

    def put_back(self) -> None:
        self.waiting.extendleft(attrs.evolve(item, is_again=True) for item in reversed(self.taken.values()))
        self.taken.clear()


@attrs.define(eq=False)
class QueueTransport:
    """Delivers mail between agents of the same process through queues in memory; implements `Transport`."""

    roster: Roster
    keys: Keys | None
    """Keys for checking the MAC (signature) of messages that are read; None if MACs are not checked."""
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits = attrs.field(factory=MailLimits)
    sent: int = attrs.field(default=0, init=False)
    """Number of messages that `send` has put into mailboxes so far."""
    _boxes: dict[str, _Mailbox] = attrs.field(factory=dict, init=False)

    async def send(self, envelope: Envelope) -> Receipt:
        """Put the message *envelope* into its recipient's mailbox, as `Transport.send`; if cancelled, store nothing."""
        await trio.lowlevel.checkpoint()
        name, size = envelope.recipient.name, len(envelope.to_bytes())
        member = find_member(self.roster, name)
        if member.state == "ended":
            raise RecipientEnded(name, member.incarnation)
        if size > self.limits.message_bytes:
            raise MessageTooLarge(size, self.limits.message_bytes)
        box = self._box(name)
        if len(box) >= self.limits.messages:
            raise MailboxFull(name, len(box), self.limits.messages, "messages")
        if box.bytes + size > self.limits.bytes:
            raise MailboxFull(name, box.bytes, self.limits.bytes, "bytes")
        box.put(_Item(envelope=envelope, size=size))
        if trigger("duplicate", "queue", name) is not None:
            box.put(_Item(envelope=envelope, size=size))
        self.sent += 1
        return Receipt(id=envelope.id, recipient=name, transport="queue", stored=self.clock.now())

    @asynccontextmanager
    async def open_inbox(self, name: str, incarnation: int, *, seen: Container[MessageId] = ()) -> AsyncIterator[Inbox]:
        """Open the mailbox of *name*, as `Transport.open_inbox`; at the end, unacknowledged messages return to it."""
        find_member(self.roster, name)
        box = self._box(name)
        if box.has_reader:
            raise MailboxBusy(name)
        box.has_reader = True
        box.readers += 1
        validator = MessageValidator(name=name, incarnation=incarnation, keys=self.keys, clock=self.clock)
        inbox = _MemoryInbox(
            box=box, reader=box.readers, validator=validator, seen=seen, store_dead_letter=self.store_dead_letter
        )
        try:
            yield inbox
        finally:
            inbox.is_closed = True
            box.has_reader = False
            box.put_back()

    def backlog(self, name: str) -> Backlog:
        """Return number, bytes and oldest time of the unacknowledged messages of *name*, as `Transport.backlog`."""
        find_member(self.roster, name)
        box = self._box(name)
        first = next(itertools.chain(box.taken.values(), box.waiting), None)
        return Backlog(messages=len(box), bytes=box.bytes, oldest=None if first is None else first.envelope.created)

    def needs_turn(self, name: str) -> bool:
        """True if the mailbox of *name* has an unacknowledged message of a kind that wakes an idle agent."""
        box = self._box(name)
        return any(item.envelope.kind not in NEVER_WAKES for item in (*box.taken.values(), *box.waiting))

    def _box(self, name: str) -> _Mailbox:
        return self._boxes.setdefault(name, _Mailbox())


@attrs.define(eq=False, kw_only=True)
class _MemoryInbox:
    box: _Mailbox
    reader: int
    validator: MessageValidator
    seen: Container[MessageId]
    store_dead_letter: StoreDeadLetter
    is_closed: bool = False
    _fault_point: FaultPoint = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fault_point = FaultPoint("queue", self.name)

    @property
    def name(self) -> str:
        return self.validator.name

    def take_nowait(self, limit: int | None = None) -> list[Delivery]:
        self._check_open()
        deliveries: list[Delivery] = []
        while self.box.waiting and (limit is None or len(deliveries) < limit):
            if not self._fault_point.can_read(self.box.waiting[0].envelope.id):
                break
            try:
                item = self._take_first()
            except OSError as exc:
                # Messages taken before must not be lost with the error, which occurs again at the next call.
                if deliveries:
                    break
                raise MailboxFailed(self.name, f"cannot store a dead letter: {exc.strerror}; check the disk") from exc
            if item is not None:
                deliveries.append(Delivery(envelope=item.envelope, is_again=item.is_again))
        return self._fault_point.reorder(deliveries)

    async def wait(self) -> None:
        self._check_open()
        await self._fault_point.wait_for_delay()
        if self.box.waiting:
            await trio.lowlevel.checkpoint()
        else:
            await self.box.arrival.wait()

    async def acknowledge(self, ids: Collection[MessageId]) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        for id_ in ids:
            if id_ not in self.box.taken and self.box.acknowledged.get(id_) != self.reader:
                raise ValueError(f"cannot acknowledge message {id_}: this inbox of {self.name!r} has not returned it")
        for id_ in ids:
            if (item := self.box.taken.pop(id_, None)) is not None:
                self.box.bytes -= item.size
                self.box.add_acknowledged(id_, self.reader)

    def _take_first(self) -> _Item | None:
        """Take the first waiting message and return it; None if read before or now a dead letter. Raises `OSError`."""
        item = self.box.waiting[0]
        envelope = item.envelope
        # Checked first: a message in the transcript was accepted once, and is no dead letter because it is old now.
        if envelope.id in self.box.taken or envelope.id in self.box.acknowledged:
            self.box.drop_first()
        elif envelope.id in self.seen:
            self.box.drop_first()
            self.box.add_acknowledged(envelope.id, 0)
        elif (rejection := self.validator.rejection_reason(envelope)) is not None:
            self.store_dead_letter(self.validator.to_dead_letter(*rejection, envelope.to_bytes(), envelope))
            self.box.drop_first()
        else:
            self.box.taken[envelope.id] = self.box.waiting.popleft()
            return item
        return None

    def _check_open(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError(f"the inbox of {self.name!r} is closed; open it again to use it")
