"""Key header: all parameters outside the prompt that decide which cache entries a request can read."""

from typing import Any

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import check_object
from coterie.agents.loop.model.catalog import Model


def _check_parameter(_header: object, attribute: "attrs.Attribute[bytes | None]", value: bytes | None) -> None:
    try:
        check_object(b"{}" if value is None else value)
    except ValueError as exc:
        raise ValueError(f"{attribute.name}: {exc}") from exc


def _parameter() -> Any:
    return attrs.field(default=None, validator=_check_parameter)


@attrs.frozen(kw_only=True)
class KeyHeader:
    """The cache-relevant parameters of a request; JSON parameters are bytes and stay unchanged.

    The constructor raises `ValueError` for a JSON parameter that is not one object.
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
    """True if any block of the conversation shows an image; the conversation keeps this up to date."""

    def to_bytes(self) -> bytes:
        """Serialize the header as one JSON object; equal headers give equal bytes."""
        members = attrs.asdict(self)
        return msgspec.json.encode({name: _raw(value) for name, value in members.items()})

    @classmethod
    def from_bytes(cls, stored: bytes) -> "KeyHeader":
        """Parse a header that `to_bytes` wrote. Raises `ValueError`."""
        shape = msgspec.json.decode(stored, type=_Stored)
        members = {name: _unraw(value) for name, value in msgspec.structs.asdict(shape).items()}
        return cls(**members)

    def parameters(self) -> bytes:
        """Return the JSON members for a request body, without braces.

        The API version and the betas are not among them: they are HTTP headers.
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
    """Return a key header that disables thinking, or asks for little effort if *model* always thinks."""
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
