"""Replies of the model, built from stream events; their content blocks are the bytes that later requests send."""

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
"""Type of stream delta -> its field with new text, and the field of the content block that gets this text appended."""


@attrs.frozen(kw_only=True)
class ReplyBlock:
    """One content block of a model reply, such as a text or a tool call, as bytes and as a parsed object."""

    data: bytes
    """The block as JSON, ready for later requests; the input of a tool call has exactly the bytes that arrived."""
    value: dict[str, Any]
    """The block as a parsed JSON object; `input` is empty in a tool call whose input is not valid JSON."""
    is_whole: bool = True
    """False for a tool call whose input is not valid JSON, most often because `max_tokens` cut it off; else True."""

    @property
    def type(self) -> str:
        """Type of the block, such as `text`, `thinking` or `tool_use`."""
        return str(self.value["type"])


@attrs.frozen(kw_only=True)
class Reply:
    """A model reply after the end of its stream. Its content may be incomplete if `stop_reason` is `max_tokens`."""

    message_id: str
    model: str
    blocks: tuple[ReplyBlock, ...]
    stop_reason: str
    stop_details: dict[str, Any] | None
    usage: Usage
    raw_usage: dict[str, Any]
    """The `usage` object of the API, including fields that the class `Usage` does not have."""
    context_management: dict[str, Any] | None = None
    request_id: str | None = None
    first_byte: float = 0.0
    """Seconds from sending the request to the first event."""
    duration: float = 0.0
    """Seconds from sending the request to the end of the reply."""
    attempts: int = 1

    @property
    def text(self) -> str:
        """Text of all text blocks of the reply, joined by blank lines; empty without text blocks."""
        return "\n\n".join(block.value["text"] for block in self.blocks if block.type == "text")

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """Tool calls of the reply in order, as parsed `tool_use` blocks, without calls that were cut off."""
        return tuple(block.value for block in self.sendable if block.type == "tool_use")

    @property
    def unreadable_calls(self) -> frozenset[str]:
        """Ids of the tool calls whose input is complete but is not valid JSON."""
        return frozenset(block.value["id"] for block in self.sendable if not block.is_whole)

    @property
    def sendable(self) -> tuple[ReplyBlock, ...]:
        """Blocks of the reply that later requests can contain: all but empty texts and tool calls that were cut off."""
        return tuple(block for block in self.blocks if self._is_sendable(block))

    def _is_sendable(self, block: ReplyBlock) -> bool:
        if block.type == "text":
            return bool(block.value["text"])
        return block.is_whole or self.stop_reason == "tool_use"


@attrs.define(eq=False)
class _OpenBlock:
    """A content block of a reply that is still being received."""

    fields: dict[str, Any]
    pieces: dict[str, list[str]] = attrs.field(factory=dict)
    """Field of the block -> pieces of text that stream deltas have appended to this field so far."""

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
    """Builder of one model reply: `feed` adds each event of its stream, then `build` returns the reply."""

    usage: dict[str, Any] = attrs.field(factory=dict)
    """Token usage that the API has reported so far; the first event has the input, so a broken reply has a cost too."""
    _message: dict[str, Any] | None = None
    _blocks: dict[int, _OpenBlock] = attrs.field(factory=dict)
    _end: dict[str, Any] = attrs.field(factory=dict)
    has_stopped: bool = attrs.field(default=False, init=False)
    """True if the last event of the reply (`message_stop`) has arrived."""

    @property
    def has_begun(self) -> bool:
        """True if the first event of the reply (`message_start`) has arrived."""
        return self._message is not None

    def feed(self, data: bytes) -> dict[str, Any]:
        """Parse *data*, the JSON of one stream event, add the event to the reply, and return the parsed event.

        Raises `ModelError` for an `error` event, and `ReplyMalformed` for an event that violates the protocol.
        """
        try:
            event: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
            self._dispatch(event)
        except (msgspec.DecodeError, KeyError, TypeError) as exc:
            raise ReplyMalformed(f"the API sent an invalid event {data[:200]!r}: {exc!r}; try again") from exc
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
        """Return the complete reply; *facts* are fields of `Reply` that only the caller knows, such as `duration`.

        Raises `ReplyMalformed` if the first or last event or the stop reason has not arrived.
        """
        if self._message is None or not self.has_stopped or not self._end.get("stop_reason"):
            raise ReplyMalformed("the API ended the stream before the reply was complete; try again")
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
"""Maximum size of one stream event of the API, in bytes."""


@attrs.define(eq=False)
class SseParser:
    """Incremental parser of server-sent events: fed with chunks, it yields the `data` of each event, in order.

    It replaces the SDK's parser, whose typed events cost more CPU time than everything else in a turn. A chunk may end
    anywhere, also inside a line ending. Comments, `event:` and other fields are skipped, because the API repeats the
    name of the event in its data.
    """

    _rest: bytes = b""
    _ends_with_cr: bool = False
    """True if the last chunk ended with a carriage return, so that the next chunk may begin with its line feed."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of each event that *chunk* completes. Raises `ReplyMalformed` if one exceeds `EVENT_LIMIT`."""
        if chunk:
            rest = chunk.removeprefix(b"\n") if self._ends_with_cr else chunk
            chunk, self._ends_with_cr = rest, chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        *events, self._rest = text.split(b"\n\n")
        if len(self._rest) > EVENT_LIMIT:
            raise ReplyMalformed(f"the API sent an event of more than {EVENT_LIMIT:,} bytes, the limit; try again")
        for event in events:
            lines = (line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
            if data := b"\n".join(lines):
                yield data


@attrs.define(eq=False)
class WholeReplyParser:
    """Parser of the non-streamed reply to a request with `max_tokens` 0; yields the events of an equivalent stream."""

    _received: bytearray = attrs.field(factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add *chunk* to the received bytes; if they are a complete reply now, yield it as data of stream events."""
        self._received += chunk
        try:
            message = msgspec.json.decode(self._received, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return  # incomplete so far; a reply that stays incomplete yields no event and counts as not begun
        yield msgspec.json.encode({"type": "message_start", "message": message})
        end = {"stop_reason": message.get("stop_reason")}
        yield msgspec.json.encode({"type": "message_delta", "delta": end, "usage": message.get("usage")})
        yield b'{"type":"message_stop"}'
