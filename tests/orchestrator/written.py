"""Sessions written as agents write them: real event logs and transcripts, without a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.conversation import Conversation, KeyHeader, Role, TranscriptWriter, text_block
from coterie.agents.conversation.records import ReplyRecord
from coterie.agents.events import Event, EventLog, Finished, Started
from coterie.agents.usage import Usage
from coterie.clock import Clock

STARTED = Started(session="s", incarnation=1, model="m", permission_mode="default", project="/p", tools=["Read"])
FINISHED = Finished(reason="completed", result="done", turns=1, usage={}, cost_usd="0.1")


@attrs.define(eq=False)
class SteppingClock(Clock):
    """A second passes each time it is read."""

    def now(self) -> float:
        """A second later than before."""
        self._offset += 1
        return 1000 + self._offset


@attrs.define(eq=False)
class Writer:
    """An agent's two files, written as the agent writes them."""

    clock: Clock
    log: EventLog
    transcript: TranscriptWriter
    conversation: Conversation

    def tell(self, event: Event) -> None:
        """Append to the event log."""
        self.log.tell(event)

    def say(self, role: Role, text: str, *also: ReplyRecord) -> None:
        """Record a message of one text block."""
        self.put(role, {"type": "text", "text": text}, *also)

    def put(self, role: Role, block: dict[str, Any], *also: ReplyRecord) -> None:
        """Record a message of one block."""
        self.conversation.append(role, [msgspec.json.encode(block)])
        self.transcript.record(self.conversation, *also)


@contextmanager
def writing(session: Path, agent: str = "main", clock: Clock | None = None) -> Iterator[Writer]:
    """The files of *agent* in the session's directory, new or taken up again."""
    directory = session / "agents" / agent
    directory.mkdir(parents=True, exist_ok=True)
    clock = clock or SteppingClock()
    with (
        EventLog.open(directory / "events.jsonl", agent, clock) as log,
        TranscriptWriter.open(directory / "transcript.jsonl", clock) as transcript,
    ):
        begun = transcript.loaded.conversation
        fresh = Conversation.begin(KeyHeader(model="m"), tools=[], system=[text_block("be good")])
        yield Writer(clock, log, transcript, begun or fresh)


def reply(turn: int = 1) -> ReplyRecord:
    """What a small reply used."""
    return ReplyRecord(
        turn=turn,
        message_id="msg",
        request_id=None,
        stop_reason="end_turn",
        usage=Usage(input=5, output=7),
        cost_usd="0.01",
        max_tokens=8000,
        seconds=1.0,
        first_byte=0.5,
        attempts=1,
        is_taken=True,
    )
