"""Checks of a single memory file, and of the index `MEMORY.md`, which lists all memories of a store."""

import re
from collections.abc import Collection, Iterator

from coterie.memory.checking.issue import CheckedMemory, StoreIssue
from coterie.memory.front_matter.front_matter import parse_front_matter
from coterie.memory.markdown import lines_with_code
from coterie.memory.store.memory_index import LONGEST_LINE, index_lines, is_memory, load_index
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.secret_scan import find_secrets
from coterie.memory.store.transaction import LARGEST

_SPAN = re.compile(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")


def prose_lines(text: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the lines of *text* outside fenced code blocks, each after its line number, counted from *first*."""
    for number, (line, is_code) in enumerate(lines_with_code(text.split("\n")), first):
        if not is_code:
            yield number, line


def code_spans(line: str) -> list[str]:
    """Return the texts of the code spans (text between backticks) on *line*, without the backticks."""
    return [span.strip() for _, span in _SPAN.findall(line)]


def without_spans(line: str) -> str:
    """Return *line* with each code span (text between backticks) replaced by a space."""
    return _SPAN.sub(" ", line)


TYPES = "user, feedback, project or reference"
_DAY = "mon|tues|wednes|thurs|fri|satur|sun"
_RELATIVE = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight"
    rf"|(?:last|next|this)\s+(?:week(?:end)?|month|year|quarter|sprint|spring|summer|autumn|winter|(?:{_DAY})day)"
    r"|(?:\d+|a|an|one|two|three|four|five|six|a few|several)\s+(?:days?|weeks?|months?|years?)\s+ago"
    r"|in\s+(?:\d+|a|one|two|three|four|five|six|a few)\s+(?:days?|weeks?|months?))\b",
    re.IGNORECASE,
)


def check_file(memory: CheckedMemory) -> Iterator[StoreIssue]:
    """Yield the issues of one memory file: invalid text or front matter, too many bytes, relative dates, secrets."""
    if reason := _not_text(memory.content):
        yield StoreIssue(path=memory.path, kind="not_text", reason=reason)
        return
    if len(memory.content) > LARGEST:
        reason = f"has more than {LARGEST:,} bytes and was checked only up to there; split it into several memories"
        yield StoreIssue(path=memory.path, kind="too_large", reason=reason)
    yield from _front_matter(memory)
    for number, line in prose_lines(memory.entry.body, memory.body_line):
        if match := _RELATIVE.search(without_spans(line)):
            reason = f"says {match[0]!r}, which changes its meaning with the current date; write the date instead"
            yield StoreIssue(path=memory.path, line=number, kind="relative_date", reason=reason)
    for secret in find_secrets(memory.text):
        reason = f"contains {secret.kind}; delete it and revoke it, because the change log contains it too"
        yield StoreIssue(path=memory.path, line=secret.line, kind="secret", reason=reason)


def _not_text(content: bytes) -> str | None:
    if b"\0" in content:
        return "is not text, because it contains a NUL byte; rewrite it as text or delete it"
    try:
        content.decode()
    except UnicodeDecodeError as exc:
        return f"is not UTF-8: byte {exc.start:,} is 0x{content[exc.start]:02x}; save it as UTF-8"
    return None


def _front_matter(memory: CheckedMemory) -> Iterator[StoreIssue]:
    front = parse_front_matter(memory.text)
    if front.line is None:
        reason = "has no front matter; begin the file with `name`, `description` and `type` between two lines `---`"
        yield StoreIssue(path=memory.path, kind="front_matter", reason=reason)
        return
    for note in front.notes:
        yield StoreIssue(path=memory.path, line=note.line, kind="front_matter", reason=note.reason)
    for field in ("name", "description"):
        value = front.fields.get(field)
        if not (isinstance(value, str) and value.strip()):
            reason = f"has no {field}, by which memories are selected; add the line `{field}: ...` to the front matter"
            yield StoreIssue(path=memory.path, line=front.line, kind="front_matter", reason=reason)
    if memory.entry.type is None:
        reason = f"has no valid type; add a line such as `type: project` to the front matter, with {TYPES}"
        yield StoreIssue(path=memory.path, line=front.line, kind="front_matter", reason=reason)


def check_index(text: str, paths: Collection[str]) -> Iterator[StoreIssue]:
    """Yield the issues of the index *text*: dead or repeated links, too much text, and unlisted memories of *paths*."""
    linked: dict[str, int] = {}
    lines, known = text.split("\n"), frozenset(paths)
    for entry in index_lines(text):
        if is_dangling(entry.path, known):
            reason = f"links to {entry.path}, which does not exist; delete the line, or repair the index with --fix"
            yield StoreIssue(path=INDEX, line=entry.line, kind="dead_link", reason=reason)
        elif entry.path in linked:
            reason = f"links to {entry.path}, as line {linked[entry.path]} does; delete one of the two lines"
            yield StoreIssue(path=INDEX, line=entry.line, kind="dead_link", reason=reason)
        linked.setdefault(entry.path, entry.line)
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            reason = f"has {len(line):,} characters; shorten it to at most {LONGEST_LINE}"
            yield StoreIssue(path=INDEX, line=number, kind="long_line", reason=reason)
    if (warning := load_index(text).warning) is not None:
        yield StoreIssue(path=INDEX, kind="long_index", reason=warning)
    for path in sorted(known - linked.keys()):
        reason = f"is not listed in {INDEX}, so agents do not know it; add a line, or repair the index with --fix"
        yield StoreIssue(path=path, kind="orphan", reason=reason)


def is_dangling(path: str, known: Collection[str]) -> bool:
    """True if the link target *path* is a memory file missing in *known*; False for URLs, logs and other files."""
    return path not in known and path.endswith(".md") and is_memory(path) and "://" not in path
