"""Context layer 1: long tool results are stored in files, and a preview stays in the conversation."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from coterie.files import replace_file
from coterie.memory.layer_settings import ResultSettings

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")


@attrs.frozen(kw_only=True)
class LongResult:
    """Text of one tool result and its size limit, from which is decided if the text is stored in a file."""

    id: str
    text: str
    cap: int | None
    """Maximum characters of a result that is not stored; None to never store it (the tool itself limits its size)."""


def select_results(results: Sequence[LongResult], settings: ResultSettings) -> list[LongResult]:
    """Return the results to store in files: first each result above its own limit, then the largest other results,
    until the text that stays in the message is within `settings.total`, or no other result is long enough.
    """
    stored = [result for result in results if result.cap is not None and len(result.text) > result.cap]
    rest = [result for result in results if result not in stored]
    size = sum(len(result.text) for result in rest) + settings.preview * len(stored)
    for result in sorted(rest, key=lambda result: len(result.text), reverse=True):
        if size <= settings.total or len(result.text) <= settings.preview:
            break
        if result.cap is not None:
            stored.append(result)
            size -= len(result.text) - settings.preview
    return stored


def store_results(
    results: Sequence[LongResult], directory: Path, settings: ResultSettings
) -> Mapping[str, tuple[Path, str]]:
    """Write each result to a file in *directory*. Return, by result id, the path and the text that replaces the result.

    Blocks. Raises `OSError`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = {}
    for result in results:
        path = directory / result_file_name(result.id)
        replace_file(path, result.text.encode("utf-8", "surrogatepass"), durable=False, mode=0o600)
        kept[result.id] = (path, stored_result_text(result.text, path, settings.preview))
    return kept


def result_file_name(tool_use_id: str) -> str:
    """Return the file name of a result: its id, or a hash if the id, which the API chose, is not a plain name."""
    is_plain = _PLAIN.fullmatch(tool_use_id) is not None
    return f"{tool_use_id if is_plain else hashlib.blake2b(tool_use_id.encode(), digest_size=16).hexdigest()}.txt"


def stored_result_text(text: str, path: Path, preview: int) -> str:
    """Return the text that replaces a stored result: its size, its file and its beginning."""
    return (
        f"<persisted-output>\n{len(text):,} characters are too many to show here. All of them are in {path}: "
        f"search that file, or read a part of it.\nIt begins:\n{truncate_text(text, preview)}\n</persisted-output>"
    )


def truncate_text(text: str, size: int) -> str:
    """Cut *text* to at most *size* bytes, at the end of a line if possible, never inside a character."""
    start = text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
    whole, newline, _ = start.rpartition("\n")
    return whole if newline and len(start) < len(text) else start
