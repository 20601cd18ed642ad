"""Test harness of the conformance suite: an open transport, its surroundings, and numbered promises."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
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
    """What a transport is made of, besides its place."""

    roster: Roster
    keys: Keys
    clock: Clock
    store_dead_letter: StoreDeadLetter
    limits: MailLimits


class Tampering(Protocol):
    """A way past the transport, for places that others can write to."""

    def write_bytes(self, name: str, raw: bytes) -> None:
        """Put *raw* behind everything in the mailbox of *name*."""
        ...

    def write_record(self, name: str, envelope: Envelope) -> None:
        """Put *envelope* behind everything in the mailbox of *name*, as the transport would write it."""
        ...


class TransportFactory(Protocol):
    """Where a transport keeps its mail. This is what the author of a transport writes to have it tested."""

    @property
    def tampering(self) -> Tampering | None:
        """None if nobody but the transport can write there; then promises about damage do not apply."""
        ...

    @property
    def has_macs(self) -> bool:
        """Whether the reader gets the MAC that the sender made; False where a trusted hop in between signs anew."""
        ...

    def open_transport(self, parts: TransportParts) -> AbstractAsyncContextManager[Transport]:
        """A transport on this place. Opened again after it was closed, it stands for a restart of every process.

        If mail lives in the process alone, all that it gives are the same transport.
        """
        ...


OpenTransportFactory = Callable[[], AbstractAsyncContextManager[TransportFactory]]
"""Gives an empty place."""


@attrs.define(eq=False)
class KeyRing:
    """A key for every sender, until it is lost."""

    lost: set[str] = attrs.field(factory=set)

    def key_of(self, sender: Sender) -> bytes | None:
        """The key of that start of that name."""
        return None if sender.name in self.lost else _key_of(sender)


@attrs.define(eq=False)
class DeadLetterRecorder:
    """Dead letters, in memory."""

    letters: list[DeadLetter] = attrs.field(factory=list)
    is_full: bool = False

    def add(self, letter: DeadLetter) -> None:
        """Keep *letter*; raises `OSError` while the graveyard is full."""
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.letters.append(letter)

    @property
    def reasons(self) -> list[str]:
        """Why each of them died."""
        return [letter.reason for letter in self.letters]


class EnvelopeFields(TypedDict, total=False):
    """Fields of an envelope that most promises leave alone."""

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
    """An open transport, and everything around it that a promise may move."""

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

    async def open(self) -> None:
        """Open the transport; closed by `close`."""
        parts = TransportParts(
            roster=self.roster,
            keys=self.keys,
            clock=self.clock,
            store_dead_letter=self.dead_letters.add,
            limits=self.limits,
        )
        self.transport = await self._stack.enter_async_context(self.factory.open_transport(parts))

    async def close(self) -> None:
        """Close the transport; the mail stays where it is."""
        await self._stack.aclose()

    async def restart(self) -> None:
        """Close the transport and open another on the same place; no inbox, nursery or cancel scope may be open."""
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
        """A signed message; without a *body* one that nobody else has. *start* is the only one it is meant for."""
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
        """Write a message, send it, and give it back."""
        envelope = self.new_message(recipient, sender=sender, start=start, body=body, **details)
        await self.transport.send(envelope)
        return envelope

    async def send_many(self, count: int, recipient: str = "bob", *, sender: str = "alice") -> list[Envelope]:
        """Send *count* messages, one after the other."""
        return [await self.send(recipient, sender=sender) for _ in range(count)]

    def open_inbox(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> AbstractAsyncContextManager[Inbox]:
        """The mailbox of *name* for the start of it that there is now."""
        member = self.roster.members().get(name)
        return self.transport.open_inbox(name, 1 if member is None else member.incarnation, seen=seen)

    async def peek(self, name: str = "bob", *, limit: int | None = None) -> list[Delivery]:
        """Take what waits for *name* with a reader of its own, and acknowledge nothing."""
        async with self.open_inbox(name) as inbox:
            return inbox.take_nowait(limit)

    async def read(self, name: str = "bob", *, seen: Container[MessageId] = ()) -> list[Envelope]:
        """Take and acknowledge what waits for *name*, with a reader of its own."""
        async with self.open_inbox(name, seen=seen) as inbox:
            envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
            await inbox.acknowledge(ids_of(envelopes))
            return envelopes

    @asynccontextmanager
    async def elsewhere(self) -> AsyncIterator["MailHarness"]:
        """Another session, with members of the same names."""
        async with self.open_factory() as place, open_harness(place, self.limits, self.open_factory) as post:
            yield post


@asynccontextmanager
async def open_harness(
    place: TransportFactory, limits: MailLimits, open_place: OpenTransportFactory
) -> AsyncIterator[MailHarness]:
    """A transport on *place*, with alice, bob and carol on its roster."""
    post = MailHarness(factory=place, limits=limits, open_factory=open_place)
    for name in MEMBERS:
        post.roster.join(name)
    await post.open()
    try:
        yield post
    finally:
        await post.close()


def ids_of(envelopes: Sequence[Envelope]) -> list[MessageId]:
    """The ids of *envelopes*, in their order."""
    return [envelope.id for envelope in envelopes]


def ids_in(deliveries: Sequence[Delivery]) -> list[MessageId]:
    """The ids of what was delivered, in that order."""
    return [delivery.envelope.id for delivery in deliveries]


async def expect_error(kind: type[_Raised] | tuple[type[_Raised], ...], doing: Awaitable[object]) -> _Raised:
    """The error of this *kind* that *doing* ends with; it must."""
    try:
        await doing
    except kind as exc:
        return exc
    raise AssertionError(f"{kind} was not raised")


def _key_of(sender: Sender) -> bytes:
    return f"{sender.name} {sender.incarnation}".encode()


TIME_LIMIT = 20.0
PromiseNeed = Literal["tampering", "macs"]


class NotApplicable(Exception):
    """A transport cannot be held to a promise: what it speaks of does not exist there."""


@attrs.frozen(kw_only=True)
class Promise:
    """One promise; its function is named `promise_<number>_<what>`, and its docstring is the sentence."""

    number: int
    name: str
    sentence: str
    need: PromiseNeed | None
    limits: MailLimits
    _test: Callable[[MailHarness], Awaitable[None]]

    async def check(self, open_place: OpenTransportFactory) -> None:
        """Raise `AssertionError` if a transport on such a place breaks it, `NotApplicable` if it cannot.

        Whatever else the transport raises comes through; `trio.TooSlowError` after 20 seconds.
        """
        with trio.fail_after(TIME_LIMIT):
            async with open_place() as place:
                self._check_applies(place)
                async with open_harness(place, self.limits, open_place) as post:
                    await self._test(post)

    def _check_applies(self, place: TransportFactory) -> None:
        if self.need == "tampering" and place.tampering is None:
            raise NotApplicable("the place gives no tampering: stored messages cannot be changed past the transport")
        if self.need == "macs" and not place.has_macs:
            raise NotApplicable("the place has no MACs: the reader does not get the MAC that the sender made")


def promise(
    *, need: PromiseNeed | None = None, limits: MailLimits | None = None
) -> Callable[[Callable[[MailHarness], Awaitable[None]]], Promise]:
    """Make a promise of a function; *limits* are those of the transport that it gets."""

    def make(test: Callable[[MailHarness], Awaitable[None]]) -> Promise:
        name: str = getattr(test, "__name__", "")
        return Promise(
            number=int(name.split("_")[1]),
            name=name,
            sentence=" ".join((test.__doc__ or "").split()),
            need=need,
            limits=limits or MailLimits(),
            test=test,
        )

    return make
