"""The file mailbox compared with a simple model: several writers, one reader, crashes at any operation."""

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.file.inbox import FileInbox
from coterie.mailbox.transports.file.transport import Durability, FileTransport
from coterie.mailbox.validation import MessageValidator
from tests.mailbox.file_mail import DeadLetterList, Disk, FailsFrom, crash, envelope, transport

SENDERS = ("bob", "cyd", "dan")
OPERATIONS = st.integers(1, 6)


@attrs.define(eq=False)
class Outgoing:
    """State of one sender, which sends a message again until it gets the receipt or gives up."""

    transport: FileTransport
    sequence: int = 0
    pending: Envelope | None = None


class MailboxModel(RuleBasedStateMachine):
    """Every message with a receipt arrives in the order of its sender, and not after it was acknowledged."""

    @initialize(durability=st.sampled_from(["process", "power"]))
    def begin(self, durability: Durability) -> None:
        """Create an empty mailbox without a reader."""
        self.root = Path(tempfile.mkdtemp(prefix="coterie-model-"))
        self.durability = durability
        self.dead_letters = DeadLetterList()
        self.disk = Disk()
        self.hooked = ExitStack()
        self.hooked.enter_context(file_faults(self.disk))
        self.senders = {name: Outgoing(self.make_transport()) for name in SENDERS}
        self.inbox: FileInbox | None = None
        self.receipted: set[MessageId] = set()
        self.transcript: dict[MessageId, Envelope] = {}
        self.acknowledged: set[MessageId] = set()
        self.doubtful: set[MessageId] = set()
        """Messages whose acknowledgement failed, perhaps after it was stored."""
        self.waiting: list[MessageId] = []
        """Messages taken by the current reader and not acknowledged."""
        self.last: dict[str, int] = {}
        """Last sequence number that the current reader got from each sender."""

    def make_transport(self) -> FileTransport:
        """Open a transport with small segments, so that many are sealed."""
        return transport(self.root, self.dead_letters, durability=self.durability, segment_bytes=1500)

    def teardown(self) -> None:
        """Read the remaining mail and check that every receipt was kept."""
        if not hasattr(self, "root"):
            return
        self.crash()
        if self.durability == "power":
            self.cut_power(share=0.0, keeps_length=False)
        self.open_inbox(knows=True)
        self.take(None)
        self.close()
        for sender in self.senders.values():
            sender.transport.close()
        shutil.rmtree(self.root)
        self.hooked.close()
        assert self.receipted <= set(self.transcript), "a receipted message is lost"
        assert set(self.dead_letters.reasons()) <= {"corrupt"}

    @rule(name=st.sampled_from(SENDERS), size=st.sampled_from([0, 10, 300]), gives_up=st.booleans())
    def send(self, name: str, size: int, *, gives_up: bool) -> None:
        """Send the message that failed before, or a new one."""
        self.store(name, self.next_envelope(name, size, gives_up=gives_up))

    @rule(name=st.sampled_from(SENDERS), number=OPERATIONS, is_torn=st.booleans(), gives_up=st.booleans())
    def send_and_crash(self, name: str, number: int, *, is_torn: bool, gives_up: bool) -> None:
        """Crash the process of a sender at some operation of a send."""
        message = self.next_envelope(name, 40, gives_up=gives_up)
        with self.disk.failing(FailsFrom(number, is_torn)):
            self.store(name, message)
        crash(self.senders[name].transport)
        self.senders[name].transport = self.make_transport()

    @rule(knows=st.booleans())
    @precondition(lambda self: self.inbox is None)
    def open_inbox(self, *, knows: bool) -> None:
        """Open the mailbox, with or without the ids of the transcript."""
        inbox = self.make_inbox(knows=knows)
        inbox.open_sync()
        self.begin_reading(inbox)

    @rule(number=OPERATIONS)
    @precondition(lambda self: self.inbox is None)
    def open_and_crash(self, number: int) -> None:
        """Crash the process of a reader while it opens the mailbox."""
        inbox = self.make_inbox(knows=False)
        with self.disk.failing(FailsFrom(number)):
            try:
                inbox.open_sync()
            except MailboxFailed:
                return
            self.begin_reading(inbox)
            self.close()

    @rule(limit=st.one_of(st.none(), st.integers(1, 5)))
    @precondition(lambda self: self.inbox is not None)
    def take(self, limit: int | None) -> None:
        """Take some messages."""
        assert self.inbox is not None
        for delivery in self.inbox.take_nowait(limit):
            message = delivery.envelope
            assert message.id not in self.acknowledged, "delivered after it was acknowledged"
            assert message.id not in self.waiting, "delivered twice to one reader"
            assert message.sequence > self.last.get(message.sender.name, 0), "out of order"
            assert delivery.is_again or message.id not in self.transcript, "again, and does not say so"
            self.last[message.sender.name] = message.sequence
            self.transcript[message.id] = message
            self.waiting.append(message.id)

    @rule(data=st.data())
    @precondition(lambda self: self.inbox is not None and self.waiting)
    def acknowledge(self, data: st.DataObject) -> None:
        """Acknowledge some messages in any order."""
        assert self.inbox is not None
        ids = data.draw(st.lists(st.sampled_from(self.waiting), unique=True))
        trio.run(self.inbox.acknowledge, ids)
        self.acknowledged.update(ids)
        self.waiting = [id_ for id_ in self.waiting if id_ not in ids]

    @rule(data=st.data(), number=OPERATIONS)
    @precondition(lambda self: self.inbox is not None and self.waiting)
    def acknowledge_and_crash(self, data: st.DataObject, number: int) -> None:
        """Crash the process of the reader at some operation of an acknowledgement."""
        assert self.inbox is not None
        ids = data.draw(st.lists(st.sampled_from(self.waiting), unique=True))
        with self.disk.failing(FailsFrom(number)):
            try:
                trio.run(self.inbox.acknowledge, ids)
                self.acknowledged.update(ids)
            except MailboxFailed:
                self.doubtful.update(ids)
            self.close()

    @rule()
    @precondition(lambda self: self.inbox is not None)
    def close(self) -> None:
        """Close the mailbox."""
        assert self.inbox is not None
        self.inbox.close_sync()
        self.inbox = None

    @rule()
    @precondition(lambda self: self.inbox is not None)
    def crash(self) -> None:
        """Kill the process of the reader."""
        if self.inbox is not None:
            with self.disk.failing(FailsFrom(1, is_torn=False)):
                self.close()

    @rule(share=st.floats(0, 1), keeps_length=st.booleans())
    @precondition(lambda self: self.durability == "power")
    def cut_power(self, *, share: float, keeps_length: bool) -> None:
        """Kill all processes and lose unsynced bytes; acknowledgements are never synced."""
        self.crash()
        for sender in self.senders.values():
            crash(sender.transport)
            sender.transport = self.make_transport()
        self.disk.cut_power(self.root / "ada", share, keeps_length=keeps_length)
        self.acknowledged.clear()

    @invariant()
    def nothing_is_counted_that_is_not_there(self) -> None:
        """The backlog counts at most the messages ever sent and the parts of torn ones."""
        if not hasattr(self, "root"):
            return
        sent = len(self.receipted) + len(self.doubtful) + sum(sender.sequence for sender in self.senders.values())
        assert self.make_transport().backlog("ada").messages <= 2 * sent

    def next_envelope(self, name: str, size: int, *, gives_up: bool) -> Envelope:
        """Return the message that failed last, or a new one."""
        sender = self.senders[name]
        if sender.pending is not None and not gives_up:
            return sender.pending
        sender.sequence += 1
        return envelope(sender.sequence, "x" * size, sender=name)

    def store(self, name: str, message: Envelope) -> None:
        """Send, and record the receipt if there is one."""
        sender = self.senders[name]
        sender.pending = message
        try:
            trio.run(partial(sender.transport.send, message))
        except MailboxFailed:
            return
        sender.pending = None
        self.receipted.add(message.id)

    def make_inbox(self, *, knows: bool) -> FileInbox:
        """Create a reader; if it *knows*, it has the ids of the transcript."""
        return FileInbox(
            directory=self.root / "ada",
            seen=frozenset(self.transcript) if knows else frozenset(),
            validator=MessageValidator(name="ada", incarnation=1, keys=None, clock=Clock()),
            store_dead_letter=self.dead_letters.add,
            is_durable=self.durability == "power",
            check_member=lambda: None,
        )

    def begin_reading(self, inbox: FileInbox) -> None:
        """Make *inbox* the current reader."""
        self.inbox, self.waiting, self.last = inbox, [], {}


TestFileModel = pytest.mark.slow(MailboxModel.TestCase)
TestFileModel.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.soak
def test_mailbox_model_with_many_examples() -> None:
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 - only here

    run_state_machine_as_test(
        MailboxModel, settings=settings(max_examples=2000, stateful_step_count=100, deadline=None)
    )
