"""Test harness of the conformance suite: an open transport, its surroundings, and numbered promises."""

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
    """Constructor arguments of a transport, except for its storage."""

    roster: Roster
    keys: Keys
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits


class Tampering(Protocol):
    """Access to stored mail past the transport, where other processes can write to it."""

    def write_bytes(self, name: str, raw: bytes) -> None:
        """Append *raw* to the mailbox of *name*."""
        ...

    def write_record(self, name: str, envelope: Envelope) -> None:
        """Append *envelope* to the mailbox of *name* in the format of the transport."""
        ...


class TransportFactory(Protocol):
    """Storage of a transport. The author of a transport implements this in order to test it."""

    @property
    def tampering(self) -> Tampering | None:
        """None if only the transport can write to its storage; then promises about damage do not apply."""
        ...

    @property
    def has_macs(self) -> bool:
        """True if the reader gets the MAC of the sender; False if a trusted hop in between signs again."""
        ...

    def open_transport(self, parts: TransportParts) -> AbstractAsyncContextManager[Transport]:
        """Open a transport on this storage. Opening another one after closing it simulates a restart of all processes.

        If mail lives only in the process, all calls return the same transport.
        """
        ...


OpenTransportFactory = Callable[[], AbstractAsyncContextManager[TransportFactory]]
"""Function that opens an empty storage."""


@attrs.define(eq=False)
class KeyRing:
    """A key for every sender, except for lost keys."""

    lost: set[str] = attrs.field(factory=set)

    def key_of(self, sender: Sender) -> bytes | None:
        """Return the key of this incarnation of the sender; None if it is lost."""
        return None if sender.name in self.lost else _key_of(sender)


@attrs.define(eq=False)
class DeadLetterRecorder:
    """Dead letters, kept in memory."""

    letters: list[DeadLetter] = attrs.field(factory=list)
    is_full: bool = False

    def add(self, letter: DeadLetter) -> None:
        """Keep *letter*; raises `OSError` while `is_full`."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.letters.append(letter)

    @property
    def reasons(self) -> list[str]:
        """Reasons of all dead letters."""
        return [letter.reason for letter in self.letters]


class EnvelopeFields(TypedDict, total=False):
    """Fields of an envelope that most promises leave at their defaults."""

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
    """An open transport with the roster, keys, clock and dead letters that a promise may change."""

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
        """Access to the stored mail, for promises that need it."""
        assert self.factory.tampering is not None
        return self.factory.tampering

    async def open(self) -> None:
        """Open the transport; `close` closes it."""
        parts = TransportParts(
            roster=self.roster,
            keys=self.keys,
            clock=self.clock,
            store_dead_letter=self.dead_letters.add,
            limits=self.limits,
        )
        self.transport = await self._stack.enter_async_context(self.factory.open_transport(parts))

    async def close(self) -> None:
        """Close the transport; its stored mail stays."""
        await self._stack.aclose()

    async def restart(self) -> None:
        """Close the transport and open another on the same storage; no inbox, nursery or cancel scope may be open."""
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
        """Build a signed message, with a unique *body* by default. *start* is the only incarnation that may get it."""
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
        """Build a message, send it, and return it."""
        envelope = self.new_message(recipient, sender=sender, start=start, body=body, **details)
        await self.transport.send(envelope)
        return envelope

    async def send_many(self, count: int) -> list[Envelope]:
        """Send *count* messages from alice to bob, one after the other."""
        return [await self.send() for _ in range(count)]

    def open_inbox(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> AbstractAsyncContextManager[Inbox]:
        """Open the mailbox of *name* for its current incarnation."""
        member = self.roster.members().get(name)
        return self.transport.open_inbox(name, 1 if member is None else member.incarnation, seen=seen)

    async def peek(self, name: str = "bob") -> list[Delivery]:
        """Take pending messages of *name* with a separate reader, without acknowledging them."""
        async with self.open_inbox(name) as inbox:
            return inbox.take_nowait()

    async def read(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> list[Envelope]:
        """Take and acknowledge pending messages of *name* with a separate reader."""
        async with self.open_inbox(name, seen=seen) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge(ids_of(envelopes))
            return envelopes

    @asynccontextmanager
    async def open_other_session(self) -> AsyncIterator["MailHarness"]:
        """Open another session with members of the same names."""
        async with self.open_factory() as factory, open_harness(factory, self.limits, self.open_factory) as mail:
            yield mail


@asynccontextmanager
async def open_harness(
    factory: TransportFactory, limits: MailLimits, open_factory: OpenTransportFactory
) -> AsyncIterator[MailHarness]:
    """Open a transport with storage from *factory*, and with alice, bob and carol on its roster."""
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
    """Return the ids of the delivered messages, in their order."""
    return [delivery.envelope.id for delivery in deliveries]


async def expect_error(expected: type[_Raised] | tuple[type[_Raised], ...], operation: Awaitable[object]) -> _Raised:
    """Await *operation* and return the error of type *expected* that it raises; fail if it raises none."""
    try:
        await operation
    except expected as exc:
        return exc
    raise AssertionError(f"{expected} was not raised")


def _key_of(sender: Sender) -> bytes:
    return f"{sender.name} {sender.incarnation}".encode()


TIME_LIMIT = 20.0
PromiseNeed = Literal["tampering", "macs"]
_Test = Callable[[MailHarness], Awaitable[None]]


class NotApplicable(Exception):
    """A promise cannot be tested for a transport, because its storage lacks what the promise is about."""


@attrs.frozen(kw_only=True)
class Promise:
    """One promise. Its function is named `promise_<number>_<subject>`; its docstring is the sentence."""

    number: int
    name: str
    sentence: str
    need: PromiseNeed | None
    limits: MailLimits
    _test: _Test

    @classmethod
    def of(cls, test: _Test, need: PromiseNeed | None = None, limits: MailLimits | None = None) -> "Promise":
        """Return the promise that the function *test* checks."""
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
            raise NotApplicable("the reader does not get the MAC that the sender made")


def promise(*, need: PromiseNeed | None = None, limits: MailLimits | None = None) -> Callable[[_Test], Promise]:
    """Decorate a promise that needs something of the storage, or *limits* of the transport under test."""
    return lambda test: Promise.of(test, need, limits)


def promises_in(module: ModuleType) -> Iterator[Promise]:
    """Yield the promises of *module*: all functions `promise_<number>_<subject>`."""
    for name, value in vars(module).items():
        if name.startswith("promise_"):
            yield value if isinstance(value, Promise) else Promise.of(value)
