"""Replies of the model, built from stream events; content blocks keep the bytes they are sent back as."""

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
"""Delta type -> its own field, and the field of the block that it extends."""


@attrs.frozen(kw_only=True)
class ReplyBlock:
    """One content block of a reply."""

    data: bytes
    """The block as JSON, ready to become a segment; a tool call's input is the text the model streamed."""
    value: dict[str, Any]
    """The same block parsed; of a tool call that was cut off, `input` is empty."""
    is_whole: bool = True
    """False for a tool call whose input cannot be read, most often because max_tokens cut it: it cannot be made."""

    @property
    def type(self) -> str:
        """The block's type: text, thinking, tool_use ..."""
        return str(self.value["type"])


@attrs.frozen(kw_only=True)
class Reply:
    """A whole reply; nothing of it is missing, whatever its stop reason."""

    message_id: str
    model: str
    blocks: tuple[ReplyBlock, ...]
    stop_reason: str
    stop_details: dict[str, Any] | None
    usage: Usage
    raw_usage: dict[str, Any]
    """The usage object as reported, with what `Usage` does not keep."""
    context_management: dict[str, Any] | None = None
    diagnostics: dict[str, Any] | None = None
    request_id: str | None = None
    first_byte: float = 0.0
    """Seconds from sending the request to the first event."""
    duration: float = 0.0
    """Seconds from sending the request to the end of the reply."""
    attempts: int = 1

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return "\n\n".join(block.value["text"] for block in self.blocks if block.type == "text")

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """The tool calls, parsed, in the order the model made them; one that was cut off is none."""
        return tuple(block.value for block in self.sendable if block.type == "tool_use")

    @property
    def unreadable_calls(self) -> frozenset[str]:
        """The ids of those tool calls whose input is no JSON, although the model had ended it."""
        return frozenset(block.value["id"] for block in self.sendable if not block.is_whole)

    @property
    def sendable(self) -> tuple[ReplyBlock, ...]:
        """The blocks that can be sent back: no empty text, and no call that was cut off."""
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
    """What the deltas brought, by the field of the block they extend."""

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
        # Any other delta belongs to a later version of the API, and clients must ignore it.

    def close(self) -> ReplyBlock:
        joined = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        input_text = joined.pop("input", "")
        fields = {**self.fields, **{name: self.fields.get(name, "") + text for name, text in joined.items()}}
        if not input_text:
            return ReplyBlock(data=msgspec.json.encode(fields), value=fields)
        try:
            value = {**fields, "input": msgspec.json.decode(input_text)}
        except (msgspec.DecodeError, RecursionError):  # JSON can be nested deeper than a parser bears
            return ReplyBlock(data=msgspec.json.encode(fields), value=fields, is_whole=False)
        raw = {**fields, "input": msgspec.Raw(input_text.encode())}
        return ReplyBlock(data=msgspec.json.encode(raw), value=value)


@attrs.define(eq=False)
class ReplyBuilder:
    """Takes the events of one stream in order and gives the reply when it has ended."""

    usage: dict[str, Any] = attrs.field(factory=dict)
    """What was reported so far; input is known from the first event on, so a broken stream can be accounted."""
    _message: dict[str, Any] | None = None
    _blocks: dict[int, _OpenBlock] = attrs.field(factory=dict)
    _end: dict[str, Any] = attrs.field(factory=dict)
    _has_stopped: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether the reply's first event is here."""
        return self._message is not None

    @property
    def has_stopped(self) -> bool:
        """Whether the reply's last event is here."""
        return self._has_stopped

    def feed(self, data: bytes) -> dict[str, Any]:
        """Take one event's data and return it parsed.

        Raises `ModelError` for an `error` event and `ReplyMalformed` for one that breaks the protocol.
        """
        try:
            event: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
            self._dispatch(event)
        except (msgspec.DecodeError, KeyError, TypeError) as exc:
            raise ReplyMalformed(f"event {data[:200]!r}: {exc!r}") from exc
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
                self._has_stopped = True
            case "error":
                raise stream_error(event["error"], begun=self.has_begun)
            case _:
                pass  # content_block_stop and ping carry nothing; events of a later API are to be ignored

    def build(self, **facts: Any) -> Reply:
        """The reply; *facts* are the fields only the caller knows.

        Raises `ReplyMalformed` if the stream is unfinished.
        """
        if self._message is None or not self._has_stopped or not self._end.get("stop_reason"):
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
            diagnostics=self._message.get("diagnostics"),
            **facts,
        )


def stream_error(error: dict[str, Any], *, begun: bool) -> ModelError:
    """Our error for an `error` event, which comes after status 200."""
    kind = str(error.get("type"))
    return _ERRORS.get(kind, ModelFailed)(str(error.get("message")), status=200, kind=kind, begun=begun)


@attrs.define(eq=False)
class WholeReplyParser:
    """Takes the bytes of a reply without content, and gives the events of its beginning and its end."""

    _received: bytearray = attrs.field(factory=bytearray)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take *chunk*; once the reply is whole, yield the data of each event."""
        self._received += chunk
        try:
            message = msgspec.json.decode(self._received, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError:
            return  # not whole yet; one that never is has not begun, for whoever waits for its events
        yield msgspec.json.encode({"type": "message_start", "message": message})
        end = {"stop_reason": message.get("stop_reason")}
        yield msgspec.json.encode({"type": "message_delta", "delta": end, "usage": message.get("usage")})
        yield b'{"type":"message_stop"}'
