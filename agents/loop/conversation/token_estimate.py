"""Estimates of token counts, sizes of context windows, and fill levels at which an agent acts.

The tokenizer of the models is not public. Estimates are too high rather than too low, so that an agent acts in time.
"""

import base64
import contextlib
import re
from collections.abc import Callable

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Model
from coterie.errors import ConfigInvalid

MILLION_WINDOW = 1_000_000
MILLION_SUFFIX = "[1m]"

SUMMARY_RESERVE = 20_000
COMPACT_MARGIN = 13_000
WARN_MARGIN = 20_000
BLOCK_MARGIN = 3_000

TEXT_BYTES = 4
JSON_BYTES = 2
MEDIA_TOKENS = 2_000
PAGE_TOKENS = 4_000
"""Estimated tokens of one PDF page: the API reads its text, often 1,500 to 3,000 tokens, and an image of the page."""


def estimate_text(text: bytes | str) -> int:
    """Return the estimated number of tokens of plain text."""
    return _tokens(text, TEXT_BYTES)


def estimate_json(json: bytes | str) -> int:
    """Return the estimated number of tokens of JSON, which has more tokens per byte than prose."""
    return _tokens(json, JSON_BYTES)


def estimate_block(data: bytes) -> int:
    """Return the estimated number of tokens of one content block, system block or tool definition, given as JSON.

    Text and thinking count as text, tool input as JSON. Each image and each page of a PDF counts as a fixed number.
    Anything else counts as JSON, even if it cannot be parsed.
    """
    try:
        shape = msgspec.json.decode(data, type=_Shape)
        return _ESTIMATES[shape.type](shape)
    except (KeyError, ValueError, RecursionError):
        return estimate_json(data)


def window_of(model_name: str, model: Model, compact_window: int | None = None) -> int:
    """Return the size of the context window of *model* in tokens: one million if *model_name* ends with `[1m]`.

    The setting *compact_window* can only lower the result.
    """
    window = MILLION_WINDOW if model_name.endswith(MILLION_SUFFIX) else model.window
    return window if compact_window is None else min(window, compact_window)


@attrs.frozen(kw_only=True)
class Thresholds:
    """Numbers of tokens in an agent's context at which the agent warns, compacts the conversation, or stops."""

    effective: int
    """Size of the context window without the tokens that are reserved for the output of a summary."""
    warn: int
    compact: int
    block: int
    """Number of tokens in the context from which no further turn begins, so that the run ends."""

    @classmethod
    def for_window(cls, window: int, max_output: int) -> "Thresholds":
        """Return the thresholds for a context window of *window* tokens and replies of up to *max_output* tokens.

        Raises `ConfigInvalid` for a window so small that even an empty conversation would be compacted.
        """
        reserve = min(max_output, SUMMARY_RESERVE)
        effective = window - reserve
        compact = effective - COMPACT_MARGIN
        if compact <= 0:
            least = reserve + COMPACT_MARGIN
            hint = f"set compact_window in [layers.window], or the model's window in models.toml, to more than {least}"
            raise ConfigInvalid("context window", f"{window} tokens are too few for an agent; {hint}")
        return cls(
            effective=effective,
            warn=max(0, compact - WARN_MARGIN),
            compact=compact,
            block=effective - BLOCK_MARGIN,
        )


_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


class _Shape(msgspec.Struct):
    type: str = ""
    text: msgspec.Raw = msgspec.Raw(b'""')
    thinking: msgspec.Raw = msgspec.Raw(b'""')
    data: msgspec.Raw = msgspec.Raw(b'""')
    input: msgspec.Raw = msgspec.Raw(b"{}")
    content: msgspec.Raw = msgspec.Raw(b'""')
    source: msgspec.Raw = msgspec.Raw(b"{}")


class _Source(msgspec.Struct):
    type: str = ""
    data: str = ""
    content: msgspec.Raw = msgspec.Raw(b'""')


def _tokens(text: bytes | str, bytes_per_token: int) -> int:
    size = len(text.encode()) if isinstance(text, str) else len(text)
    return -(-size // bytes_per_token)


def _string(raw: msgspec.Raw) -> int:
    # Counts the escaped JSON form: escapes make the estimate higher, never lower.
    return -(-max(0, memoryview(raw).nbytes - len('""')) // TEXT_BYTES)


def _content(shape: _Shape | _Source) -> int:
    content = bytes(shape.content)
    if not content.startswith(b"["):
        return _string(shape.content)
    parts: list[msgspec.Raw] = msgspec.json.decode(content, type=list[msgspec.Raw])
    return sum(estimate_block(bytes(part)) for part in parts)


def _document(shape: _Shape) -> int:
    source = msgspec.json.decode(shape.source, type=_Source)
    if source.type == "base64":
        # Finds the page objects of every PDF that Read accepts.
        with contextlib.suppress(ValueError):  # no base64
            return PAGE_TOKENS * len(_PAGE.findall(base64.b64decode(source.data))) or MEDIA_TOKENS
        return MEDIA_TOKENS
    if source.type == "text":
        return estimate_text(source.data)
    return _content(source) if source.type == "content" else MEDIA_TOKENS


_ESTIMATES: dict[str, Callable[[_Shape], int]] = {
    "text": lambda shape: _string(shape.text),
    "thinking": lambda shape: _string(shape.thinking),
    "redacted_thinking": lambda shape: _string(shape.data),
    "tool_use": lambda shape: estimate_json(bytes(shape.input)),
    "tool_result": _content,
    "compaction": _content,
    "image": lambda _: MEDIA_TOKENS,
    "document": _document,
}
