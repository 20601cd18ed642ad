"""Test harness of the mail conformance suite: an open transport with its roster, keys and clock; and `Promise`."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Literal, Protocol, TypedDict, TypeVar, Unpack

import attrs
import trio

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, Delivery, Inbox, Keys, MailLimits, Roster, StoreDeadLetter, Transport
from coterie.mailbox.envelope import Envelope, MessageId, Recipient, Sender
from coterie.mailbox.roster import LocalRoster

SESSION = "conformance"
MEMBERS = ("alice", "bob", "carol")

_Raised = TypeVar("_Raised", bound=BaseException)


@attrs.frozen(kw_only=True)
class TransportParts:
    """Roster, keys, clock, dead letter store and limits with which a `TransportFactory` constructs a transport."""

    roster: Roster
    keys: Keys
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits


class Tampering(Protocol):
    """Writes to stored mail without using the transport, as another process could."""

    def write_bytes(self, name: str, raw: bytes) -> None:
        """Append *raw* to the mailbox of *name*, without any check or framing."""
        ...

    def write_record(self, name: str, envelope: Envelope) -> None:
        """Append *envelope*, as it is, to the mailbox of *name* in the storage format of the transport."""
        ...


class TransportFactory(Protocol):
    """Opens the transport under test on one storage. The author of a transport implements this protocol."""

    @property
    def tampering(self) -> Tampering | None:
        """Object that changes stored mail without the transport; None if that is impossible.

        With None, promises about damaged mail are not tested.
        """
        ...

    @property
    def has_macs(self) -> bool:
        """True if readers get the MAC that the sender made; False if a message is signed again on its way."""
        ...

    def open_transport(self, parts: TransportParts) -> AbstractAsyncContextManager[Transport]:
        """Open a transport on this storage. Closing it and opening another simulates a restart of all processes.

        If the transport keeps mail only in memory, all calls return the same transport.
        """
        ...


OpenTransportFactory = Callable[[], AbstractAsyncContextManager[TransportFactory]]
"""Function that returns a context manager, which opens an empty storage and yields the transport factory for it."""


@attrs.define(eq=False)
class KeyRing:
    """`Keys` for tests: every sender has a key, except the senders whose names are in `lost`."""

    lost: set[str] = attrs.field(factory=set)

    def key_of(self, sender: Sender) -> bytes | None:
        """Return the key of *sender*; None if the name of *sender* is in `lost`."""
        return None if sender.name in self.lost else _key_of(sender)


@attrs.define(eq=False)
class DeadLetterRecorder:
    """Dead letters that the transport under test has stored, kept in memory."""

    letters: list[DeadLetter] = attrs.field(factory=list)
    is_full: bool = False

    def add(self, letter: DeadLetter) -> None:
        """Append *letter* to `letters`. Raises `OSError` while `is_full` is true."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.letters.append(letter)

    @property
    def reasons(self) -> list[str]:
        """The reason of each dead letter in `letters`, in the order of storing."""
        return [letter.reason for letter in self.letters]


class EnvelopeFields(TypedDict, total=False):
    """Optional fields of an envelope. Most promises leave them at their defaults."""

    id: MessageId
    sequence: int
    created: float
    expires: float | None
    summary: str | None
    in_reply_to: MessageId | None
    group: str | None
    traceparent: str | None


@attrs.define(eq=False, kw_only=True)
class MailHarness:
    """Argument of every promise: the open transport under test, with its roster, keys, clock and dead letters."""

    factory: TransportFactory
    limits: MailLimits
    open_factory: OpenTransportFactory
    transport: Transport = attrs.field(init=False)
    roster: LocalRoster = attrs.field(factory=LocalRoster)
    keys: KeyRing = attrs.field(factory=KeyRing)
    clock: Clock = attrs.field(factory=Clock)
    dead_letters: DeadLetterRecorder = attrs.field(factory=DeadLetterRecorder)
    _sequences: Counter[tuple[str, int, str]] = attrs.field(factory=Counter)
    _stack: AsyncExitStack = attrs.field(factory=AsyncExitStack)

    @property
    def tampering(self) -> Tampering:
        """The `Tampering` of the storage, for promises that need it; it must not be None."""
        assert self.factory.tampering is not None
        return self.factory.tampering

    async def open(self) -> None:
        """Open the transport under test. `close` closes it."""
        parts = TransportParts(
            roster=self.roster,
            keys=self.keys,
            clock=self.clock,
            store_dead_letter=self.dead_letters.add,
            limits=self.limits,
        )
        self.transport = await self._stack.enter_async_context(self.factory.open_transport(parts))

    async def close(self) -> None:
        """Close the transport under test. Its stored mail is kept."""
        await self._stack.aclose()

    async def restart(self) -> None:
        """Close the transport and open another on the same storage.

        At the time of the call no inbox, nursery or cancel scope of the promise may be open.
        """
        await self.close()
        await self.open()

    def new_message(
        self,
        recipient: str = "bob",
        *,
        sender: str = "alice",
        start: int | None = None,
        body: str | None = None,
        **details: Unpack[EnvelopeFields],
    ) -> Envelope:
        """Build a signed message without sending it. By default *body* is a unique text.

        Only incarnation (start) number *start* of the recipient may receive the message; None: any may. *details*
        replace the defaults of other envelope fields.
        """
        known = self.roster.members().get(sender)
        incarnation = 1 if known is None else known.incarnation
        self._sequences[sender, incarnation, recipient] += 1
        sequence = self._sequences[sender, incarnation, recipient]
        fields = EnvelopeFields(sequence=sequence, created=self.clock.now())
        fields.update(details)
        envelope = Envelope(
            sender=Sender(name=sender, incarnation=incarnation, session=SESSION, kind="peer"),
            recipient=Recipient(name=recipient, incarnation=start),
            body=f"{sender} {incarnation} to {recipient}: {sequence}" if body is None else body,
            **fields,
        )
        return envelope.sign(_key_of(envelope.sender))

    async def send(
        self,
        recipient: str = "bob",
        *,
        sender: str = "alice",
        start: int | None = None,
        body: str | None = None,
        **details: Unpack[EnvelopeFields],
    ) -> Envelope:
        """Build a message with the arguments of `new_message`, send it, and return it."""
        envelope = self.new_message(recipient, sender=sender, start=start, body=body, **details)
        await self.transport.send(envelope)
        return envelope

    async def send_many(self, count: int) -> list[Envelope]:
        """Send *count* messages from alice to bob, one after the other. Return them in this order."""
        return [await self.send() for _ in range(count)]

    def open_inbox(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> AbstractAsyncContextManager[Inbox]:
        """Open the mailbox of *name* as its current incarnation (start).

        *seen* contains the ids of messages in the transcript of the reader, which are not delivered.
        """
        member = self.roster.members().get(name)
        return self.transport.open_inbox(name, 1 if member is None else member.incarnation, seen=seen)

    async def peek(self, name: str = "bob") -> list[Delivery]:
        """Open the mailbox of *name* and return all pending messages, without acknowledging them. Then close it."""
        async with self.open_inbox(name) as inbox:
            return inbox.take_nowait()

    async def read(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> list[Envelope]:
        """Open the mailbox of *name*, take and acknowledge all pending messages, and return them. Then close it.

        *seen* contains the ids of messages in the transcript of the reader, which are acknowledged but not returned.
        """
        async with self.open_inbox(name, seen=seen) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge(ids_of(envelopes))
            return envelopes

    @asynccontextmanager
    async def open_other_session(self) -> AsyncIterator["MailHarness"]:
        """Open and yield the harness of another session, with its own storage and members of the same names."""
        async with self.open_factory() as factory, open_harness(factory, self.limits, self.open_factory) as mail:
            yield mail


@asynccontextmanager
async def open_harness(
    factory: TransportFactory, limits: MailLimits, open_factory: OpenTransportFactory
) -> AsyncIterator[MailHarness]:
    """Open a transport with *factory*, and yield a harness with it and a roster of alice, bob and carol."""
    mail = MailHarness(factory=factory, limits=limits, open_factory=open_factory)
    for name in MEMBERS:
        mail.roster.join(name)
    await mail.open()
    try:
        yield mail
    finally:
        await mail.close()


def ids_of(envelopes: Sequence[Envelope]) -> list[MessageId]:
    """Return the ids of *envelopes*, in their order."""
    return [envelope.id for envelope in envelopes]


def ids_in(deliveries: Sequence[Delivery]) -> list[MessageId]:
    """Return the ids of the messages in *deliveries*, in their order."""
    return [delivery.envelope.id for delivery in deliveries]


async def expect_error(expected: type[_Raised] | tuple[type[_Raised], ...], operation: Awaitable[object]) -> _Raised:
    """Await *operation* and return the error of type *expected* that it raises. `AssertionError` if it raises none."""
    try:
        await operation
    except expected as exc:
        return exc
    raise AssertionError(f"the operation did not raise {expected}")


def _key_of(sender: Sender) -> bytes:
    return f"{sender.name} {sender.incarnation}".encode()


TIME_LIMIT = 20.0
PromiseNeed = Literal["tampering", "macs"]
_Test = Callable[[MailHarness], Awaitable[None]]


class NotApplicable(Exception):
    """A promise cannot be tested, because the storage of the transport lacks the ability that the test needs."""


@attrs.frozen(kw_only=True)
class Promise:
    """One numbered promise that every mail transport must keep, with the function that tests it.

    The function is named `promise_<number>_<subject>`. `sentence` is its docstring on one line.
    """

    number: int
    name: str
    sentence: str
    need: PromiseNeed | None
    limits: MailLimits
    _test: _Test

    @classmethod
    def of(cls, test: _Test, need: PromiseNeed | None = None, limits: MailLimits | None = None) -> "Promise":
        """Return the promise that the function *test* checks, with number, name and sentence taken from *test*."""
        name: str = getattr(test, "__name__", "")
        sentence, number = " ".join((test.__doc__ or "").split()), int(name.split("_")[1])
        return cls(number=number, name=name, sentence=sentence, need=need, limits=limits or MailLimits(), test=test)

    async def check(self, open_factory: OpenTransportFactory) -> None:
        """Raise `AssertionError` if a transport breaks the promise, and `NotApplicable` if it cannot be tested.

        Other errors of the transport are not caught. Raises `trio.TooSlowError` after 20 seconds.
        """
        with trio.fail_after(TIME_LIMIT):
            async with open_factory() as factory:
                self._check_applies(factory)
                async with open_harness(factory, self.limits, open_factory) as mail:
                    await self._test(mail)

    def _check_applies(self, factory: TransportFactory) -> None:
        if self.need == "tampering" and factory.tampering is None:
            raise NotApplicable("the storage allows no tampering: stored messages cannot be changed past the transport")
        if self.need == "macs" and not factory.has_macs:
            raise NotApplicable("the storage keeps no MAC: the reader does not get the one that the sender made")


def promise(*, need: PromiseNeed | None = None, limits: MailLimits | None = None) -> Callable[[_Test], Promise]:
    """Return a decorator that turns a test into a `Promise`: storage must support *need*, mailboxes have *limits*."""
    return lambda test: Promise.of(test, need, limits)


def promises_in(module: ModuleType) -> Iterator[Promise]:
    """Yield the promises of *module*, one for each of its functions `promise_<number>_<subject>`."""
    for name, value in vars(module).items():
        if name.startswith("promise_"):
            yield value if isinstance(value, Promise) else Promise.of(value)
