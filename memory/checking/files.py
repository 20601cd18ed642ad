"""What is wrong with one memory by itself: how it is written, and what must not stand in it."""

import re
from collections.abc import Iterator

from coterie.memory.checking.finding import Finding, Memory
from coterie.memory.checking.markdown import prose_lines, without_spans
from coterie.memory.front_matter import read_front_matter
from coterie.memory.store.secrets import find_secrets
from coterie.memory.store.writing import LARGEST

TYPES = "user, feedback, project or reference"
_DAY = "mon|tues|wednes|thurs|fri|satur|sun"
_RELATIVE = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight"
    rf"|(?:last|next|this)\s+(?:week(?:end)?|month|year|quarter|sprint|spring|summer|autumn|winter|(?:{_DAY})day)"
    r"|(?:\d+|a|an|one|two|three|four|five|six|a few|several)\s+(?:days?|weeks?|months?|years?)\s+ago"
    r"|in\s+(?:\d+|a|one|two|three|four|five|six|a few)\s+(?:days?|weeks?|months?))\b",
    re.IGNORECASE,
)


def file_findings(memory: Memory) -> Iterator[Finding]:
    """All that can be said of *memory* without looking at another."""
    if reason := _not_text(memory.content):
        yield Finding(path=memory.path, kind="not_text", reason=reason)
        return
    if len(memory.content) > LARGEST:
        reason = f"has more than {LARGEST:,} bytes; what is behind them was not looked at"
        yield Finding(path=memory.path, kind="too_large", reason=reason)
    yield from _front_matter(memory)
    yield from _relative_dates(memory)
    for secret in find_secrets(memory.text):
        reason = f"holds {secret.kind}; take it out, and give it up: it stands in the history too"
        yield Finding(path=memory.path, line=secret.line, kind="secret", reason=reason)


def _not_text(content: bytes) -> str | None:
    if b"\0" in content:
        return "is no text: it holds a NUL"
    try:
        content.decode()
    except UnicodeDecodeError as exc:
        return f"is not UTF-8: byte {exc.start:,} is 0x{content[exc.start]:02x}"
    return None


def _front_matter(memory: Memory) -> Iterator[Finding]:
    front = read_front_matter(memory.text)
    if front.line is None:
        reason = "has no front matter; begin it with `name`, `description` and `type` between two lines `---`"
        yield Finding(path=memory.path, kind="front_matter", reason=reason)
        return
    for note in front.notes:
        yield Finding(path=memory.path, line=note.line, kind="front_matter", reason=note.reason)
    for field in ("name", "description"):
        value = front.fields.get(field)
        if not (isinstance(value, str) and value.strip()):
            reason = f"has no {field}: recall chooses by it"
            yield Finding(path=memory.path, line=front.line, kind="front_matter", reason=reason)
    if memory.topic.type is None:
        yield Finding(
            path=memory.path, line=front.line, kind="front_matter", reason=f"has no type; it should be {TYPES}"
        )


def _relative_dates(memory: Memory) -> Iterator[Finding]:
    for number, line in prose_lines(memory.topic.body, memory.body_line):
        if match := _RELATIVE.search(without_spans(line)):
            reason = f"says {match[0]!r}, which moves with the day it is read on; write the date"
            yield Finding(path=memory.path, line=number, kind="relative_date", reason=reason)
