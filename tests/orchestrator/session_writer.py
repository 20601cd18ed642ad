"""Writers of event logs and transcripts in the format of agents, without a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.events.agent_events import Event, Finished, RunStarted
from coterie.agents.events.event_log import EventLog
from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import ReplyRecord
from coterie.agents.loop.model.catalog import Role
from coterie.agents.loop.model.usage import Usage
from coterie.clock import Clock
from coterie.mailbox.contract import MemberState
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.session_directory import SessionDirectory

STARTED = RunStarted(session="s", incarnation=1, model="m", permission_mode="default", project="/p", tools=["Read"])
COMPACTED = Compacted(
    trigger="threshold",
    by="notes",
    tokens_before=900,
    tokens_after=300,
    left=6,
    kept=0,
    words=1,
    words_added=1,
    restored=[],
    dropped=["src/a.py", "E501"],
    dropped_count=3,
    seconds=0.1,
    cost_usd="0",
    where="/s/transcript.jsonl",
)
FINISHED = Finished(reason="completed", result="done", turns=1, usage={}, cost_usd="0.1")


@attrs.define(eq=False)
class SteppingClock(Clock):
    """Clock that advances a second with every reading."""

    def now(self) -> float:
        self._offset += 1
        return 1000 + self._offset


@attrs.define(eq=False)
class SessionWriter:
    """Writer of an agent's event log and transcript."""

    clock: Clock
    log: EventLog
    transcript: TranscriptWriter
    conversation: Conversation

    def write_event(self, event: Event) -> None:
        self.log.emit(event)

    def write_text(self, role: Role, text: str, *also: ReplyRecord) -> None:
        self.put(role, {"type": "text", "text": text}, *also)

    def put(self, role: Role, block: dict[str, Any], *also: ReplyRecord) -> None:
        self.conversation.append(role, [msgspec.json.encode(block)])
        self.transcript.record(self.conversation, *also)


@contextmanager
def open_writer(session: Path, agent: str = "main", clock: Clock | None = None) -> Iterator[SessionWriter]:
    """Open the files of *agent* in the session's directory; existing files are continued."""
    directory = session / "agents" / agent
    directory.mkdir(parents=True, exist_ok=True)
    clock = clock or SteppingClock()
    with (
        EventLog.open(directory / "events.jsonl", agent, clock) as log,
        TranscriptWriter.open(directory / "transcript.jsonl", clock) as transcript,
    ):
        begun = transcript.loaded.conversation
        fresh = Conversation.begin(KeyHeader(model="m"), tools=[], system=[text_block("be good")])
        yield SessionWriter(clock, log, transcript, begun or fresh)


def reply(turn: int = 1) -> ReplyRecord:
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


def set_states(session: SessionDirectory, **states: MemberState) -> None:
    """Set the states of agents on the roster; an agent that is not on it joins."""

    async def change() -> None:
        with SessionMail.open(session, Clock()) as mail:
            for name, state in states.items():
                if name not in mail.roster.members():
                    await mail.roster.join(name)
                await mail.roster.set_state(name, state)

    trio.run(change)
