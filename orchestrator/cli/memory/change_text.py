"""Rendering of changes to memory files: as one line, as JSON, and as a unified diff."""

import difflib
from collections.abc import Iterator
from typing import Any

import attrs
import click

from coterie.memory.store.change import MemoryChange
from coterie.orchestrator.cli.output import format_time, one_line, sanitize

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def change_line(change: MemoryChange) -> str:
    """Return a change to a memory file as one line: number, time, action, file, author and reason."""
    facts = [f"{change.id:>4}", format_time(change.at), f"{change.action:<7}", one_line(change.path)]
    author = change.author
    name = author.by if author.agent is None else f"{author.by} {author.agent}"
    session = "" if author.session is None else f" of {author.session}"
    turn = "" if author.turn is None else f", turn {author.turn}"
    facts.append(f"by {one_line(f'{name}{session}{turn}')}")
    if change.group is not None:
        facts.append(f"[{one_line(change.group)}]")
    if change.undoes is not None:
        facts.append(f"undoes {change.undoes}")
    why = f": {one_line(author.why)}" if author.why else ""
    return "  ".join(facts) + why


def change_row(change: MemoryChange) -> dict[str, Any]:
    """Return a change to a memory file as a JSON object for `--json`, with the file's text before and after it."""
    texts = {name: _text(content) for name, content in (("before", change.before), ("after", change.after))}
    facts = attrs.asdict(change, filter=attrs.filters.exclude("before", "after"))
    return {**facts, "action": change.action, **texts}


def diff_lines(change: MemoryChange) -> Iterator[str]:
    """Yield the lines of a change: its `change_line` as a head line, then a unified diff with ANSI colours."""
    yield click.style(change_line(change).lstrip(), bold=True)
    before, after = ((_text(content) or "").splitlines() for content in (change.before, change.after))
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    new = "/dev/null" if change.after is None else f"b/{change.path}"
    for line in difflib.unified_diff(before, after, old, new, lineterm=""):
        is_head = line.startswith(("--- ", "+++ "))
        yield click.style(sanitize(line), fg=None if is_head else _COLOURS.get(line[:1]), bold=is_head)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")
