"""Replies of the model, built from stream events; content blocks keep the bytes that later requests send."""

from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

from coterie.agents.errors import ModelError, ModelFailed, ModelOverloaded, ModelRateLimited, ReplyMalformed
from coterie.agents.loop.model.usage import Usage

_ERRORS: dict[str, type[ModelError]] = {
    "overloaded_error": ModelOverloaded,
    "rate_limit_error": ModelRateLimited,
}

_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}
"""By type of delta: the field with its text, and the field of the block that the text extends."""


@attrs.frozen(kw_only=True)
class ReplyBlock:
    """One content block of a reply."""

    data: bytes
    """The block as JSON, ready to become a segment; the input of a tool call is the unchanged streamed text."""
    value: dict[str, Any]
    """The same block parsed; `input` is empty in a tool call that was cut off."""
    is_whole: bool = True
    """False for a tool call whose input is no valid JSON, most often because max_tokens cut it off."""

    @property
    def type(self) -> str:
        """Type of the block: text, thinking, tool_use ..."""
        return str(self.value["type"])


@attrs.frozen(kw_only=True)
class Reply:
    """A completely received reply, with any stop reason."""

    message_id: str
    model: str
    blocks: tuple[ReplyBlock, ...]
    stop_reason: str
    stop_details: dict[str, Any] | None
    usage: Usage
    raw_usage: dict[str, Any]
    """The usage object of the API, with fields that `Usage` does not keep."""
    context_management: dict[str, Any] | None = None
    request_id: str | None = None
    first_byte: float = 0.0
    """Seconds from sending the request to the first event."""
    duration: float = 0.0
    """Seconds from sending the request to the end of the reply."""
    attempts: int = 1

    @property
    def text(self) -> str:
        """Text of all text blocks, joined by blank lines."""
        return "\n\n".join(block.value["text"] for block in self.blocks if block.type == "text")

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """The parsed tool calls in order, without calls that were cut off."""
        return tuple(block.value for block in self.sendable if block.type == "tool_use")

    @property
    def unreadable_calls(self) -> frozenset[str]:
        """Ids of the tool calls whose input is complete but no valid JSON."""
        return frozenset(block.value["id"] for block in self.sendable if not block.is_whole)

    @property
    def sendable(self) -> tuple[ReplyBlock, ...]:
        """The blocks that later requests can send: no empty text, and no call that was cut off."""
        return tuple(block for block in self.blocks if self._is_sendable(block))

    def _is_sendable(self, block: ReplyBlock) -> bool:
        if block.type == "text":
            return bool(block.value["text"])
        return block.is_whole or self.stop_reason == "tool_use"


@attrs.define(eq=False)
class _OpenBlock:
    """A block that is still being streamed."""

    fields: dict[str, Any]
    pieces: dict[str, list[str]] = attrs.field(factory=dict)
    """Text of the deltas, by the field of the block that they extend."""

    def extend(self, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind in _DELTAS:
            source, target = _DELTAS[kind]
            self.pieces.setdefault(target, []).append(delta[source])
        elif kind == "signature_delta":
            self.fields["signature"] = delta["signature"]
        elif kind == "citations_delta":
            self.fields["citations"] = [*(self.fields.get("citations") or []), delta["citation"]]
        elif kind == "compaction_delta":
            self.fields.update({key: value for key, value in delta.items() if key != "type"})
        # Clients must ignore unknown deltas, which a later version of the API may send.

    def close(self) -> ReplyBlock:
        joined = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        input_text = joined.pop("input", "")
        fields = {**self.fields, **{name: self.fields.get(name, "") + text for name, text in joined.items()}}
        if not input_text:
            return ReplyBlock(data=msgspec.json.encode(fields), value=fields)
        try:
            value = {**fields, "input": msgspec.json.decode(input_text)}
        except (msgspec.DecodeError, RecursionError):  # the decoder raises RecursionError for deeply nested JSON
            return ReplyBlock(data=msgspec.json.encode(fields), value=fields, is_whole=False)
        raw = {**fields, "input": msgspec.Raw(input_text.encode())}
        return ReplyBlock(data=msgspec.json.encode(raw), value=value)


@attrs.define(eq=False)
class ReplyBuilder:
    """Builder of a reply from the events of one stream."""

    usage: dict[str, Any] = attrs.field(factory=dict)
    """Usage reported so far; the first event reports the input, so that a broken stream can be settled."""
    _message: dict[str, Any] | None = None
    _blocks: dict[int, _OpenBlock] = attrs.field(factory=dict)
    _end: dict[str, Any] = attrs.field(factory=dict)
    has_stopped: bool = attrs.field(default=False, init=False)
    """True if the last event of the reply has arrived."""

    @property
    def has_begun(self) -> bool:
        """True if the first event of the reply has arrived."""
        return self._message is not None

    def feed(self, data: bytes) -> dict[str, Any]:
        """Parse and apply the data of one event, and return the parsed event.

        Raises `ModelError` for an `error` event, and `ReplyMalformed` for an event that violates the protocol.
        """
        try:
            event: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
            self._dispatch(event)
        except (msgspec.DecodeError, KeyError, TypeError) as exc:
            raise ReplyMalformed(f"the API sent an invalid event {data[:200]!r}: {exc!r}") from exc
        return event

    def _dispatch(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "content_block_delta":
                self._blocks[event["index"]].extend(event["delta"])
            case "content_block_start":
                self._blocks[event["index"]] = _OpenBlock(event["content_block"])
            case "message_start":
                self._message = event["message"]
                self.usage.update(event["message"]["usage"])
            case "message_delta":
                self._end.update(event["delta"])
                self._end["context_management"] = event.get("context_management")
                self.usage.update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
            case "message_stop":
                self.has_stopped = True
            case "error":
                # Arrives after status 200.
                kind, message = str(event["error"].get("type")), str(event["error"].get("message"))
                raise _ERRORS.get(kind, ModelFailed)(message, status=200, kind=kind, begun=self.has_begun)
            case _:
                pass  # content_block_stop and ping have no data; unknown events of a later API must be ignored

    def build(self, **facts: Any) -> Reply:
        """Create the reply; *facts* are the fields of `Reply` that only the caller knows.

        Raises `ReplyMalformed` if the stream is incomplete.
        """
        if self._message is None or not self.has_stopped or not self._end.get("stop_reason"):
            raise ReplyMalformed("the stream ended before the reply did")
        return Reply(
            message_id=self._message["id"],
            model=self._message["model"],
            blocks=tuple(self._blocks[index].close() for index in sorted(self._blocks)),
            stop_reason=self._end["stop_reason"],
            stop_details=self._end.get("stop_details"),
            usage=Usage.from_api(self.usage),
            raw_usage=self.usage,
            context_management=self._end.get("context_management"),
            **facts,
        )


EVENT_LIMIT = 64 * 1024 * 1024
"""Size limit of one event in bytes."""


@attrs.define(eq=False)
class SseParser:
    """Incremental parser of server-sent events: fed with chunks, it yields the `data` of each event, in order.

    The SDK's typed events cost more CPU time than the rest of a turn; a reply needs only the bytes.

    A chunk may end anywhere, also inside a line ending. Comments, `event:` and other fields are skipped, because the
    API repeats the name of the event in its data.
    """

    _rest: bytes = b""
    _ends_with_cr: bool = False
    """True if the last chunk may have ended in the middle of a CRLF."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that *chunk* completes. Raises `ReplyMalformed` for a larger event."""
        if chunk:
            rest = chunk.removeprefix(b"\n") if self._ends_with_cr else chunk
            chunk, self._ends_with_cr = rest, chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        *events, self._rest = text.split(b"\n\n")
        if len(self._rest) > EVENT_LIMIT:
            raise ReplyMalformed(f"the API sent an event of more than {EVENT_LIMIT:,} bytes")
        for event in events:
            lines = (line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
            if data := b"\n".join(lines):
                yield data


@attrs.define(eq=False)
class WholeReplyParser:
    """Parser of the non-streamed reply to a request with `max_tokens` 0; yields the events of an equivalent stream."""

    _received: bytearray = attrs.field(factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Append *chunk*; if the reply is complete, yield the data of each event."""
        self._received += chunk
        try:
            message = msgspec.json.decode(self._received, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return  # incomplete so far; a reply that stays incomplete yields no event and counts as not begun
        yield msgspec.json.encode({"type": "message_start", "message": message})
        end = {"stop_reason": message.get("stop_reason")}
        yield msgspec.json.encode({"type": "message_delta", "delta": end, "usage": message.get("usage")})
        yield b'{"type":"message_stop"}'
