"""An entry of the digest is one line for one block: what the agent said, called, got or was told."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from coterie.agents.conversation import Segment

SAID = 2_000
"""Characters of what the agent says that an entry has."""
TOLD = 500
"""Characters of a result, or of what the agent is told."""
VALUE = 200
"""Characters of one value of a call's input: a whole file may stand behind the path that says what it is for."""


def entry_of(segment: Segment) -> str | None:
    """The entry for one block of a message; None for thinking, for images, and where there is nothing to say.

    It has no line break, so that nothing in a file or a message can pass for another entry.
    """
    try:
        block = msgspec.json.decode(segment.data)
        line = _line(block, is_own=segment.role == "assistant")
    except ValueError:  # JSON, but with a number in it that is none here
        return cut(segment.data.decode(), VALUE)
    return line or None


def cut(text: str, limit: int) -> str:
    """*text* on one line, and at most *limit* characters of it."""
    # Most of a long result is white space at worst; looking at more of it would cost what is cut off.
    words = " ".join(text[: 4 * limit].split())
    return f"{words[: limit - 1]}…" if len(words) > limit else words


def _line(block: Mapping[str, Any], *, is_own: bool) -> str:
    match block:
        case {"type": "text", "text": str(text)} if is_own:
            return _labelled("says", cut(text, SAID))
        case {"type": "text", "text": str(text)}:
            return _labelled("is told", cut(text, TOLD))
        case {"type": "tool_use", "name": str(name), "input": dict(members)}:
            return f"calls {name}({', '.join(_arguments(members))})"
        case {"type": "tool_result"}:
            label = "gets an error" if block.get("is_error") else "gets"
            return _labelled(label, cut(_text(block.get("content")), TOLD))
    return ""


def _labelled(label: str, text: str) -> str:
    return f"{label}: {text}" if text else ""


def _arguments(members: Mapping[str, Any]) -> Iterator[str]:
    for name, value in members.items():
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield f"{name}={cut(shown, VALUE)}"


def _text(content: Any) -> str:
    """The text of a result, without its images."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if part.get("type") == "text")
