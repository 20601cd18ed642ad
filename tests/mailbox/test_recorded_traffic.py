"""Recorded traffic of a real team, replayed as mail: 31 agents, one week, thousands of messages."""

import gzip
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from coterie.clock import Clock
from coterie.mailbox.address import check_name
from coterie.mailbox.conformance.harness import DeadLetterRecorder, KeyRing
from coterie.mailbox.contract import Transport
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.data import absent
from tests.record_property import RecordProperty

EVENTS = Path(__file__).parents[2] / "../shared/data/messages/gastown_events.jsonl.gz"
LEAD = "mayor"
SPEED = 300_000.0
"""Recorded seconds per second of replay: the week takes two seconds."""
TIME_LIMIT = 60.0


@attrs.frozen(kw_only=True)
class RecordedMessage:
    """One event of the recording, as a message from its actor to the agent that it concerns."""

    sender: str
    recipient: str
    at: float
    """Seconds since the first event."""
    body: str


@attrs.define(eq=False)
class Agent:
    """Agent that sends its messages on schedule, and takes incoming messages into its transcript."""

    name: str
    transport: Transport
    transcript: list[Envelope] = attrs.field(factory=list)
    _sent: Counter[str] = attrs.field(factory=Counter)

    async def write(self, letters: Sequence[RecordedMessage], began: float) -> None:
        """Send *letters* on the schedule that started at *began*."""
        for letter in letters:
            await trio.sleep_until(began + letter.at / SPEED)
            await self.transport.send(self._envelope(letter))

    async def read(self, expected: int) -> None:
        """Return when *expected* messages are in the transcript and acknowledged."""
        async with self.transport.open_inbox(self.name, 1) as inbox:
            while len(self.transcript) < expected:
                deliveries = inbox.take_nowait()
                if not deliveries:
                    await inbox.wait()
                self.transcript += [delivery.envelope for delivery in deliveries]
                await inbox.acknowledge([delivery.envelope.id for delivery in deliveries])

    async def has_more(self) -> bool:
        """Return True if another reader would get a message."""
        async with self.transport.open_inbox(self.name, 1) as inbox:
            return bool(inbox.take_nowait())

    def from_whom(self) -> dict[str, list[Envelope]]:
        """Return the transcript by sender, each in order of arrival."""
        return {
            name: [envelope for envelope in self.transcript if envelope.sender.name == name]
            for name in {envelope.sender.name for envelope in self.transcript}
        }

    def _envelope(self, letter: RecordedMessage) -> Envelope:
        self._sent[letter.recipient] += 1
        sender = Sender(name=self.name, incarnation=1, session="replay", kind="peer")
        envelope = Envelope(
            sender=sender,
            recipient=Recipient(name=letter.recipient),
            sequence=self._sent[letter.recipient],
            body=letter.body,
            created=letter.at,
        )
        return envelope.sign(KeyRing().key_of(sender) or b"")


OpenTransports = Callable[[Path, LocalRoster, DeadLetterRecorder], Iterator[Transport]]
"""Yields a transport for each agent."""


def _queue(_directory: Path, roster: LocalRoster, dead_letters: DeadLetterRecorder) -> Iterator[Transport]:
    transport = QueueTransport(roster, KeyRing(), Clock(), dead_letters.add)
    while True:
        yield transport


def _files(directory: Path, roster: LocalRoster, dead_letters: DeadLetterRecorder) -> Iterator[Transport]:
    while True:
        # One transport for each agent, as if each were a process: they share only the files.
        yield FileTransport(directory, roster, KeyRing(), Clock(), dead_letters.add)


@pytest.mark.slow
@pytest.mark.skipif(not EVENTS.exists(), reason=absent(EVENTS))
@pytest.mark.parametrize("open_transports", [_queue, _files], ids=["queue", "files"])
async def test_recorded_week_of_traffic_arrives_once_and_in_order(
    tmp_path: Path, open_transports: OpenTransports, record_property: RecordProperty
) -> None:
    letters = _read_messages()
    roster, dead_letters = LocalRoster(), DeadLetterRecorder()
    names = sorted({name for letter in letters for name in (letter.sender, letter.recipient)})
    for name in names:
        roster.join(name)
    transports = open_transports(tmp_path, roster, dead_letters)
    agents = {name: Agent(name, next(transports)) for name in names}

    began = trio.current_time()
    with trio.fail_after(TIME_LIMIT):
        await _replay(agents, letters)
    seconds = trio.current_time() - began

    assert (len(letters), len(agents)) == (3_667, 31)
    sent = _by_pair(letters)
    received = {
        (sender, agent.name): [envelope.body for envelope in envelopes]
        for agent in agents.values()
        for sender, envelopes in agent.from_whom().items()
    }
    assert received == sent
    assert len({envelope.id for agent in agents.values() for envelope in agent.transcript}) == len(letters)
    assert not any([await agent.has_more() for agent in agents.values()])
    assert dead_letters.letters == []
    record_property(
        "counted", f"{len(letters):,} messages of {len(agents)} agents, {len(sent)} pairs, in {seconds:.1f} s"
    )


async def _replay(agents: Mapping[str, Agent], letters: Sequence[RecordedMessage]) -> None:
    expected = Counter(letter.recipient for letter in letters)
    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        for agent in agents.values():
            own = [letter for letter in letters if letter.sender == agent.name]
            nursery.start_soon(agent.write, own, began)
            nursery.start_soon(agent.read, expected[agent.name])


def _by_pair(letters: Sequence[RecordedMessage]) -> dict[tuple[str, str], list[str]]:
    pairs: dict[tuple[str, str], list[str]] = {}
    for letter in letters:
        pairs.setdefault((letter.sender, letter.recipient), []).append(letter.body)
    return pairs


def _read_messages() -> list[RecordedMessage]:
    with gzip.open(EVENTS) as lines:
        events = [(line, msgspec.json.decode(line)) for line in lines]
    first = _time(events[0][1])
    return [
        RecordedMessage(
            sender=_name(event["actor"]), recipient=_concerned(event), at=_time(event) - first, body=line.decode()
        )
        for line, event in events
    ]


def _time(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["created_at"]).timestamp()


def _concerned(event: Mapping[str, Any]) -> str:
    """Return the agent that the event assigns the issue to, or the lead."""
    try:
        change = msgspec.json.decode(event["new_value"] or "")
    except msgspec.DecodeError:
        change = None
    is_named = isinstance(change, dict) and change.get("assignee")
    return _name(change["assignee"] if is_named else LEAD)


def _name(text: str) -> str:
    return check_name(text.replace("/", "-").replace(" ", "-"))
