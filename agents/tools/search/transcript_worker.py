"""Worker process that searches a transcript. It imports nothing of ours.

Started as a script with nothing but the standard library, as `grep_worker` is. It reads a `TranscriptSearchRequest`
from standard input and writes a `TranscriptSearchResult` to standard output, both as JSON in ASCII.
"""

import json
import re
import signal
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Who = Literal["anyone", "user", "assistant", "call", "result", "mail", "summary"]

LIFETIME = 60
"""Seconds after which it ends by itself, should whoever started it be gone."""
BEFORE = 50
AFTER = 110
"""Characters around the beginning of a match that are shown."""
SHOWN = 4_000
"""Characters of one turn that are shown."""
MAIL = "<message from="
RETOLD = ("<earlier-call>", "[Old tool result content cleared]", "I made the calls that are listed next")
"""How blocks begin that say again, or no longer, what stands further up."""


class TranscriptSearchRequest(NamedTuple):
    """What to search for, in which file."""

    path: str
    pattern: str | None
    """None shows one turn."""
    ignore_case: bool
    who: Who
    turn: int | None
    before_turn: int | None
    limit: int
    own: str
    """The tool that searches: its calls would always match themselves."""


class TranscriptSearchResult(NamedTuple):
    """What the search gave, the newest first; of one turn its texts, in their order."""

    lines: list[str] = []  # noqa: RUF012 - a default of a tuple, and nobody changes it
    total: int = 0
    """Texts that match, shown or not; of one turn, its characters."""
    last: int = 0
    """The last turn there is."""
    error: str | None = None
    """Why the pattern cannot be used."""


class Excerpt(NamedTuple):
    """A text of the transcript."""

    turn: int
    """Of a reply its own; of all else that of the reply which follows it."""
    who: Who
    name: str
    """Who it is from, in words."""
    text: str


def search(order: TranscriptSearchRequest) -> TranscriptSearchResult:
    """Search the file from its beginning to its end. Raises `OSError`."""
    if order.pattern is None:
        return _one_turn(order)
    try:
        regex = re.compile(order.pattern, re.MULTILINE | (re.IGNORECASE if order.ignore_case else 0))
    except (re.error, OverflowError, RecursionError) as exc:
        return TranscriptSearchResult(error=str(exc))
    newest: deque[str] = deque(maxlen=order.limit)
    total = last = 0
    for passage in excerpts(order.path, order.own):
        last = passage.turn
        if _is_meant(passage, order) and (match := regex.search(passage.text)):
            total += 1
            newest.append(f"turn {passage.turn}, {passage.name}: {_excerpt(passage.text, match)}")
    return TranscriptSearchResult(lines=list(reversed(newest)), total=total, last=last)


def excerpts(path: str, own: str) -> Iterator[Excerpt]:
    """All texts of the transcript, each once, whatever was rewritten; those of the tool *own* are left out.

    A line that is torn is left out.
    """
    reading = TranscriptReader(own)
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than most searches take
        for line in file:
            if line.isspace() or not line.endswith(b"\n"):
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            yield from reading.read(record)


class TranscriptReader:
    """Knows what it has read of a transcript."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._turn = 1
        self._names: dict[str, str] = {}
        """Of the tool that a call was for, by the call's id."""
        self._seen: set[int] = set()
        """Hashes of blocks: a rewritten conversation says most of them again."""

    def read(self, record: dict[str, Any]) -> Iterator[Excerpt]:
        """The texts that are new in *record*."""
        match record:
            case {"kind": "message", "role": str(role), "blocks": list(blocks)}:
                for block in map(_block, blocks):
                    self._is_new(block)
                    yield from self._excerpts(role, block, self._turn)
            case {"kind": "epoch", "messages": list(messages)}:
                yield from self._epoch(messages, is_compacted=bool(record.get("boundary")))
            case {"kind": "reply", "turn": int(turn), "is_taken": is_taken}:
                self._turn = turn + bool(is_taken)

    def _epoch(self, messages: list[dict[str, Any]], *, is_compacted: bool) -> Iterator[Excerpt]:
        inherited = 0 if self._seen else _inherited(messages)
        for number, message in enumerate(messages):
            role, turn = "summary" if is_compacted else message["role"], 0 if number < inherited else self._turn
            for block in filter(self._is_new, map(_block, message["blocks"])):
                for passage in self._excerpts(role, block, turn):
                    if not passage.text.startswith(RETOLD):
                        yield passage

    def _is_new(self, block: dict[str, Any]) -> bool:
        before = len(self._seen)
        self._seen.add(hash(json.dumps(block)))
        return len(self._seen) > before

    def _excerpts(self, role: str, block: dict[str, Any], turn: int) -> Iterator[Excerpt]:
        """The text of *block*, if it has one."""
        match block:
            case {"type": "text", "text": str(text)} if role == "summary":
                yield Excerpt(turn, "summary", "earlier summary", text)
            case {"type": "text", "text": str(text)} if text.startswith(MAIL):
                yield Excerpt(turn, "mail", "mail", text)
            case {"type": "text", "text": str(text)}:
                yield Excerpt(turn, "assistant" if role == "assistant" else "user", role, text)
            case {"type": "tool_use", "id": str(id_), "name": str(name), "input": dict(arguments)}:
                self._names[id_] = name
                if name != self._own:
                    text = "\n".join(f"{key}: {_plain(value)}" for key, value in arguments.items())
                    yield Excerpt(turn, "call", f"call {name}", text)
            case {"type": "tool_result", "tool_use_id": str(id_), "content": content}:
                name = self._names.get(id_, "a call")
                if name != self._own:
                    yield Excerpt(turn, "result", f"result of {name}", _result(content))


def _block(stored: Any) -> dict[str, Any]:
    """A block as it is; one that holds a newline of its own stands as a string of JSON."""
    block: dict[str, Any] = json.loads(stored) if isinstance(stored, str) else stored
    return block


def _inherited(messages: list[dict[str, Any]]) -> int:
    """How many of the messages that a conversation begins with are older than it: a fork's, up to the last reply."""
    return max((number for number, message in enumerate(messages, 1) if message["role"] == "assistant"), default=0)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _result(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _is_meant(passage: Excerpt, order: TranscriptSearchRequest) -> bool:
    is_old_enough = order.before_turn is None or passage.turn < order.before_turn
    return is_old_enough and order.who in ("anyone", passage.who)


def _excerpt(text: str, match: re.Match[str]) -> str:
    """What stands around the match, on one line."""
    start, end = max(match.start() - BEFORE, 0), match.start() + AFTER
    words = " ".join(text[start:end].split())
    return f"{'...' if start else ''}{words}{'...' if end < len(text) else ''}"


def _one_turn(order: TranscriptSearchRequest) -> TranscriptSearchResult:
    lines: list[str] = []
    total = last = 0
    for passage in excerpts(order.path, order.own):
        last = passage.turn
        if passage.turn == order.turn and order.who in ("anyone", passage.who):
            room = max(SHOWN - total, 0)
            total += len(passage.text)
            if room:
                lines.append(f"[{passage.name}]\n{passage.text[:room]}")
    return TranscriptSearchResult(lines=lines, total=total, last=last)


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    sys.stdout.write(json.dumps(search(TranscriptSearchRequest(**json.load(sys.stdin)))._asdict()))
