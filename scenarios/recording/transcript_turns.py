"""Turns of each agent from its transcript: replies, tool results, deliveries, files seen."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.conversation.transcript_records import (
    EpochMessage,
    EpochRecord,
    MailRecord,
    MessageRecord,
    Record,
    ReplyRecord,
    StateRecord,
    UserTextRecord,
    read_line,
    restore_json,
)
from coterie.errors import ConfigInvalid

Block = dict[str, Any]


@attrs.frozen(kw_only=True, eq=False)
class ModelTurn:
    """A reply that became part of the conversation."""

    turn: int
    blocks: Sequence[Block]
    stop_reason: str
    asked: float
    """When the model was asked, about, in seconds since 1970."""
    at: float
    """When the reply was recorded."""
    inputs: int
    """How many of the agent's texts were there when the model was asked."""

    @property
    def calls(self) -> list[Block]:
        """Its tool calls."""
        return [block for block in self.blocks if block.get("type") == "tool_use"]


@attrs.frozen(kw_only=True)
class RecordedResult:
    """What came of a tool call."""

    text: str
    is_error: bool
    at: float


@attrs.frozen(kw_only=True)
class RecordedDelivery:
    """A message of another is in the conversation."""

    id: str
    turn: int
    """The last that the model had answered by then; 0 for none."""
    at: float
    is_shown: bool
    """Whether it stands there as mail; if not, it is what a call that waited for it came to."""


@attrs.frozen(kw_only=True)
class SeenFile:
    """The agent has seen or written a file, in this version."""

    path: Path
    version: str
    at: float


@attrs.define(eq=False, kw_only=True)
class AgentTurns:
    """One agent, as its transcript has it."""

    name: str
    replies: list[ModelTurn] = attrs.field(factory=list)
    count: int = 0
    """All replies, with those that were cut off and asked for again."""
    inputs: list[str] = attrs.field(factory=list)
    """Texts of the user's side, and of tool results, in their order."""
    results: dict[str, RecordedResult] = attrs.field(factory=dict)
    """By the id of the call."""
    deliveries: list[RecordedDelivery] = attrs.field(factory=list)
    sights: list[SeenFile] = attrs.field(factory=list)
    words: list[tuple[float, str]] = attrs.field(factory=list)
    """What the human said, and the task, with the time."""
    header: Block = attrs.field(factory=dict)
    """What else decided over its first request: model, thinking, effort ..."""
    _message: MessageRecord | None = None
    """The last one."""

    def handle(self, record: Record) -> None:
        """Go on by one record."""
        match record:
            case EpochRecord():
                self.header = self.header or msgspec.json.decode(restore_json(record.header))
                for message in record.messages:
                    self._handle_user_message(message, record.at)
            case MessageRecord():
                self._message = record
                self._handle_user_message(record, record.at)
            case ReplyRecord():
                self._reply(record)
            case MailRecord():
                self._deliver(record)
            case StateRecord():
                self.sights += [SeenFile(path=Path(path), version=v, at=record.at) for path, v in record.seen.items()]
            case UserTextRecord():
                self.words += [(record.at, text) for text in record.texts]
            case _:
                pass

    def _handle_user_message(self, message: MessageRecord | EpochMessage, at: float) -> None:
        for block in _blocks(message) if message.role == "user" else ():
            text = _text(block)
            self.inputs.append(text)
            if block.get("type") == "tool_result":
                is_error = block.get("is_error") is True
                self.results[block["tool_use_id"]] = RecordedResult(text=text, is_error=is_error, at=at)

    def _reply(self, record: ReplyRecord) -> None:
        self.count += 1
        if not record.is_taken:
            return
        message, self._message = self._message, None
        is_there = message is not None and message.role == "assistant"
        said = ModelTurn(
            turn=record.turn,
            blocks=_blocks(message) if message is not None and is_there else (),
            stop_reason=record.stop_reason,
            asked=record.at - record.seconds,
            at=record.at,
            inputs=len(self.inputs),
        )
        # One that a crash had cut off from its record is asked for again under its number.
        self.replies = [*(each for each in self.replies if each.turn != record.turn), said]

    def _deliver(self, record: MailRecord) -> None:
        shown = "" if self._message is None else "\n".join(_text(block) for block in _blocks(self._message))
        turn = self.replies[-1].turn if self.replies else 0
        self.deliveries += [
            RecordedDelivery(id=id_, turn=turn, at=record.at, is_shown=f'id="{id_}"' in shown) for id_ in record.ids
        ]


def read_agent_turns(directory: Path) -> dict[str, AgentTurns]:
    """Every agent of the session in *directory* that has a transcript, by name.

    A record that a crash left unfinished is passed over. Blocks; raises `ConfigInvalid` for damage.
    """
    return {path.parent.name: _read(path) for path in sorted(directory.glob("agents/*/transcript.jsonl"))}


def _read(path: Path) -> AgentTurns:
    voice = AgentTurns(name=path.parent.name)
    try:
        size = load_transcript(path).size
        for record in _records(path, size):
            voice.handle(record)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"is damaged: {exc}; `coterie doctor` says more") from exc
    except OSError as exc:
        raise ConfigInvalid(str(path), f"cannot be read: {exc.strerror}") from exc
    return voice


def _records(path: Path, size: int) -> Iterator[Record]:
    for line in path.read_bytes()[:size].split(b"\n"):
        if line and (record := read_line(line)) is not None:
            yield record


def _blocks(message: MessageRecord | EpochMessage) -> list[Block]:
    return [msgspec.json.decode(restore_json(block)) for block in message.blocks]


def _text(block: Block) -> str:
    """The text of a block, or of the result that it is."""
    content = block.get("content", ()) if block.get("type") == "tool_result" else (block,)
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
