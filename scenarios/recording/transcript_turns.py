"""Reads the transcripts (stored conversations) of a session: replies, tool results, mail and files of each agent."""

from collections.abc import Sequence
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
    """A model reply that became part of the conversation, with the number of its turn, counted from 1."""

    turn: int
    blocks: Sequence[Block]
    stop_reason: str
    asked: float
    """Approximate time of the request for this reply, in seconds since 1970."""
    at: float
    """Time when the reply was added to the transcript, in seconds since 1970."""
    inputs: int
    """Number of texts in `AgentTurns.inputs` that the agent had received before this reply."""

    @property
    def calls(self) -> list[Block]:
        """Tool calls in this reply, as `tool_use` blocks of the model API."""
        return [block for block in self.blocks if block.get("type") == "tool_use"]


@attrs.frozen(kw_only=True)
class RecordedResult:
    """Result of one tool call: its text for the model, and True in `is_error` if the call failed."""

    text: str
    is_error: bool


@attrs.frozen(kw_only=True)
class RecordedDelivery:
    """Delivery of one message from another agent or the user: message id, turn and time."""

    id: str
    turn: int
    """Number of the last turn whose reply came before the delivery; 0 if the message came before the first reply."""
    at: float
    is_shown: bool
    """True if the agent got the message as mail; False if a tool call that waited for the message returned it."""


@attrs.frozen(kw_only=True)
class SeenFile:
    """A file that the agent read or wrote at the time `at`; `version` is the hash of its content then."""

    path: Path
    version: str
    at: float


@attrs.define(eq=False, kw_only=True)
class AgentTurns:
    """Replies, inputs, tool results, mail and files of one agent, collected from the records of its transcript."""

    name: str
    replies: list[ModelTurn] = attrs.field(factory=list)
    count: int = 0
    """Number of all model replies, including replies that were cut off and then requested again."""
    inputs: list[str] = attrs.field(factory=list)
    """Texts that the agent received, in order: texts of user messages and tool results."""
    results: dict[str, RecordedResult] = attrs.field(factory=dict)
    """Results of the tool calls, by the id of the call."""
    deliveries: list[RecordedDelivery] = attrs.field(factory=list)
    seen_files: list[SeenFile] = attrs.field(factory=list)
    user_texts: list[tuple[float, str]] = attrs.field(factory=list)
    """The task and later texts from the user, each with its time in seconds since 1970."""
    header: Block = attrs.field(factory=dict)
    """Parameters of the first model request apart from the messages, such as `model`, `thinking` and `effort`."""
    _message: MessageRecord | None = None
    """Last message record, from which the next reply record takes the blocks of the reply; None after that."""

    def handle(self, record: Record) -> None:
        """Add the content of *record*, the next record of the transcript, to the fields of this object."""
        match record:
            case EpochRecord():
                self.header = self.header or msgspec.json.decode(restore_json(record.header))
                for message in record.messages:
                    self._handle_user_message(message)
            case MessageRecord():
                self._message = record
                self._handle_user_message(record)
            case ReplyRecord():
                self._reply(record)
            case MailRecord():
                self._deliver(record)
            case StateRecord():
                self.seen_files += [
                    SeenFile(path=Path(path), version=v, at=record.at) for path, v in record.seen.items()
                ]
            case UserTextRecord():
                self.user_texts += [(record.at, text) for text in record.texts]
            case _:
                pass

    def _handle_user_message(self, message: MessageRecord | EpochMessage) -> None:
        for block in _blocks(message) if message.role == "user" else ():
            text = _text(block)
            self.inputs.append(text)
            if block.get("type") == "tool_result":
                is_error = block.get("is_error") is True
                self.results[block["tool_use_id"]] = RecordedResult(text=text, is_error=is_error)

    def _reply(self, record: ReplyRecord) -> None:
        self.count += 1
        if not record.is_taken:
            return
        message, self._message = self._message, None
        is_there = message is not None and message.role == "assistant"
        reply = ModelTurn(
            turn=record.turn,
            blocks=_blocks(message) if message is not None and is_there else (),
            stop_reason=record.stop_reason,
            asked=record.at - record.seconds,
            at=record.at,
            inputs=len(self.inputs),
        )
        # A reply without its record, after a crash, was requested again with the same turn number.
        self.replies = [*(each for each in self.replies if each.turn != record.turn), reply]

    def _deliver(self, record: MailRecord) -> None:
        shown = "" if self._message is None else "\n".join(_text(block) for block in _blocks(self._message))
        turn = self.replies[-1].turn if self.replies else 0
        self.deliveries += [
            RecordedDelivery(id=id_, turn=turn, at=record.at, is_shown=f'id="{id_}"' in shown) for id_ in record.ids
        ]


def read_agent_turns(directory: Path) -> dict[str, AgentTurns]:
    """Return the content of the transcript of each agent of the session in *directory*, by agent name. Blocks.

    An incomplete last record is skipped. Raises `ConfigInvalid` for a corrupt or unreadable transcript.
    """
    return {path.parent.name: _read(path) for path in sorted(directory.glob("agents/*/transcript.jsonl"))}


def _read(path: Path) -> AgentTurns:
    agent_turns = AgentTurns(name=path.parent.name)
    try:
        size = load_transcript(path).size
        for line in path.read_bytes()[:size].split(b"\n"):
            if line and (record := read_line(line)) is not None:
                agent_turns.handle(record)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"the transcript is corrupt: {exc}; run `coterie doctor`") from exc
    except OSError as exc:
        raise ConfigInvalid(str(path), f"the file cannot be read: {exc.strerror}; correct its permissions") from exc
    return agent_turns


def _blocks(message: MessageRecord | EpochMessage) -> list[Block]:
    return [msgspec.json.decode(restore_json(block)) for block in message.blocks]


def _text(block: Block) -> str:
    """Return the text of a text block, or the texts in a tool result; empty for a block without text."""
    content = block.get("content", ()) if block.get("type") == "tool_result" else (block,)
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
