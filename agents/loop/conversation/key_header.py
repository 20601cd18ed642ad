"""Key header: the request parameters outside the prompt, such as the model, on which prompt cache hits depend."""

from typing import Any

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import check_object
from coterie.agents.loop.model.catalog import Model


def _check_parameter(_header: object, attribute: "attrs.Attribute[bytes | None]", value: bytes | None) -> None:
    try:
        check_object(b"{}" if value is None else value)
    except ValueError as exc:
        raise ValueError(f"invalid request parameter {attribute.name}: {exc}") from exc


def _parameter() -> Any:
    return attrs.field(default=None, validator=_check_parameter)


@attrs.frozen(kw_only=True)
class KeyHeader:
    """Request parameters outside the prompt, such as the model, that decide which prompt cache entries can be read.

    Parameters of type bytes are JSON objects, sent unchanged. The constructor raises `ValueError` for other bytes.
    """

    model: str
    api_version: str = "2026-10-21"
    betas: tuple[str, ...] = ()
    tool_choice: bytes | None = _parameter()
    thinking: bytes | None = _parameter()
    output_format: bytes | None = _parameter()
    context_management: bytes | None = _parameter()
    effort: str | None = None
    speed: str | None = None
    has_images: bool = False
    """True if the conversation contains an image: the API then uses other cache entries. `Conversation` updates it."""

    def to_bytes(self) -> bytes:
        """Return the header as one JSON object, for hashes and the transcript; equal headers give equal bytes."""
        members = attrs.asdict(self)
        return msgspec.json.encode({name: _raw(value) for name, value in members.items()})

    @classmethod
    def from_bytes(cls, stored: bytes) -> "KeyHeader":
        """Return the header that `to_bytes` encoded as *stored*. Raises `ValueError` for invalid bytes."""
        shape = msgspec.json.decode(stored, type=_Stored)
        members = {name: _unraw(value) for name, value in msgspec.structs.asdict(shape).items()}
        return cls(**members)

    def parameters(self) -> bytes:
        """Return the parameters as JSON members of a request body, without braces: `"model":"x","thinking":{...}`.

        API version and betas are left out, because they are sent as HTTP headers.
        """
        output = {"effort": self.effort, "format": self.output_format}
        members = {
            "model": self.model,
            "tool_choice": self.tool_choice,
            "thinking": self.thinking,
            "output_config": _given(output) or None,
            "speed": self.speed,
            "context_management": self.context_management,
        }
        return msgspec.json.encode(_given(members))[1:-1]


def header_without_thinking(model: Model) -> KeyHeader:
    """Return request parameters for *model* with thinking switched off, or with low effort if it always thinks."""
    if model.thinking == "always":
        return KeyHeader(model=model.id, effort=model.effort_of("low"))
    return KeyHeader(model=model.id, thinking=msgspec.json.encode({"type": "disabled"}))


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    api_version: str
    betas: tuple[str, ...]
    tool_choice: msgspec.Raw
    thinking: msgspec.Raw
    output_format: msgspec.Raw
    context_management: msgspec.Raw
    effort: str | None
    speed: str | None
    has_images: bool


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: _raw(value) for name, value in members.items() if value is not None}


def _raw(value: Any) -> Any:
    return msgspec.Raw(value) if isinstance(value, bytes) else value


def _unraw(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    data = bytes(value)
    return None if data == b"null" else data
