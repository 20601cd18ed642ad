"""Worker process of the SearchTranscript tool, which searches the transcript (stored conversation) of an agent.

Runs as a script and imports only the standard library. Reads a `TranscriptSearchRequest` from standard input and writes
a `TranscriptSearchResult` to standard output, both as ASCII JSON.
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
"""Seconds after which SIGALRM kills the worker process, in case the agent process that started it has died."""
BEFORE = 50
AFTER = 110
"""Number of characters shown from the start of a match on; BEFORE characters before the start are shown too."""
SHOWN = 4_000
"""Maximum characters shown if the request asks for all texts of one turn."""
MAIL = "<message from="
REPEATED = ("<earlier-call>", "[Old tool result content cleared]", "I made the calls that are listed next")
"""First words of texts in a rewritten conversation that repeat or replace earlier content; a search skips them."""


class TranscriptSearchRequest(NamedTuple):
    """Request to the worker process to search the transcript in the file *path*, or to show one turn."""

    path: str
    pattern: str | None
    """Regular expression to search for; None to show the turn `turn`."""
    ignore_case: bool
    who: Who
    turn: int | None
    before_turn: int | None
    limit: int
    own: str
    """Name of the search tool, whose calls and results are skipped, because they contain the pattern themselves."""


class TranscriptSearchResult(NamedTuple):
    """Answer of the worker process: one line for each match, newest first, or the texts of the turn in order."""

    lines: list[str] = []  # noqa: RUF012 - default of a NamedTuple that is never mutated
    total: int = 0
    """Number of matching texts, also of those beyond the limit; if one turn is shown, its number of characters."""
    last: int = 0
    """Number of the last turn in the transcript."""
    error: str | None = None
    """Reason why the regular expression of the request is invalid; None if it is valid."""


class Excerpt(NamedTuple):
    """One searchable text of the transcript: a message, a reply, a tool call, a result, mail or a summary."""

    turn: int
    """Number of the turn; a text before a reply has the turn of that reply. 0 for texts that a fork inherited."""
    who: Who
    name: str
    """Source of the text, as shown to the model, such as `user` or `result of Bash`."""
    text: str


def search(request: TranscriptSearchRequest) -> TranscriptSearchResult:
    """Return the matches, or the texts of one turn; an invalid pattern sets `error`. Raises `OSError` if unreadable."""
    if request.pattern is None:
        return _one_turn(request)
    try:
        regex = re.compile(request.pattern, re.MULTILINE | (re.IGNORECASE if request.ignore_case else 0))
    except (re.error, OverflowError, RecursionError) as exc:
        return TranscriptSearchResult(error=str(exc))
    newest: deque[str] = deque(maxlen=request.limit)
    total = last = 0
    for excerpt in excerpts(request.path, request.own):
        last = excerpt.turn
        is_old_enough = request.before_turn is None or excerpt.turn < request.before_turn
        is_selected = is_old_enough and request.who in ("anyone", excerpt.who)
        if is_selected and (match := regex.search(excerpt.text)):
            total += 1
            newest.append(f"turn {excerpt.turn}, {excerpt.name}: {_context(excerpt.text, match)}")
    return TranscriptSearchResult(lines=list(reversed(newest)), total=total, last=last)


def excerpts(path: str, own: str) -> Iterator[Excerpt]:
    """Yield each text of the transcript file *path* once, oldest first, even if a rewritten conversation repeats it.

    Skips calls of the tool *own* with their results, and incomplete or invalid lines. Raises `OSError`.
    """
    reader = TranscriptReader(own)
    with open(path, "rb") as file:  # noqa: PTH123 - importing pathlib takes longer than most searches
        for line in file:
            if line.isspace() or not line.endswith(b"\n"):
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            yield from reader.read(record)


class TranscriptReader:
    """Converter of the records of one transcript, passed to `read` in order, to searchable texts."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._turn = 1
        self._names: dict[str, str] = {}
        """Id of a tool call -> name of the called tool, to name its result."""
        self._seen: set[int] = set()
        """Hashes of the content blocks read so far, to skip their copies in a rewritten conversation."""

    def read(self, record: dict[str, Any]) -> Iterator[Excerpt]:
        """Yield the texts of *record*, the next parsed line; if it is a rewritten conversation, only its new texts."""
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
        # A fork has inherited all messages up to the last reply.
        replies = (number for number, message in enumerate(messages, 1) if message["role"] == "assistant")
        inherited = 0 if self._seen else max(replies, default=0)
        for number, message in enumerate(messages):
            role, turn = "summary" if is_compacted else message["role"], 0 if number < inherited else self._turn
            for block in filter(self._is_new, map(_block, message["blocks"])):
                for excerpt in self._excerpts(role, block, turn):
                    if not excerpt.text.startswith(REPEATED):
                        yield excerpt

    def _is_new(self, block: dict[str, Any]) -> bool:
        before = len(self._seen)
        self._seen.add(hash(json.dumps(block)))
        return len(self._seen) > before

    def _excerpts(self, role: str, block: dict[str, Any], turn: int) -> Iterator[Excerpt]:
        """Yield the text of *block* (a text, call or result; else nothing). *role*: of its message, or "summary"."""
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
                    is_text = isinstance(content, str)
                    text = content if is_text else "\n".join(part.get("text", "") for part in content)
                    yield Excerpt(turn, "result", f"result of {name}", text)


def _block(stored: Any) -> dict[str, Any]:
    """Return the content block *stored* in a record. A block with a newline is stored as a string of JSON text."""
    block: dict[str, Any] = json.loads(stored) if isinstance(stored, str) else stored
    return block


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _context(text: str, match: re.Match[str]) -> str:
    """Return the part of *text* around the start of *match* on one line, with `...` where text is left out."""
    start, end = max(match.start() - BEFORE, 0), match.start() + AFTER
    shown = " ".join(text[start:end].split())
    return f"{'...' if start else ''}{shown}{'...' if end < len(text) else ''}"


def _one_turn(request: TranscriptSearchRequest) -> TranscriptSearchResult:
    lines: list[str] = []
    total = last = 0
    for excerpt in excerpts(request.path, request.own):
        last = excerpt.turn
        if excerpt.turn == request.turn and request.who in ("anyone", excerpt.who):
            remaining = max(SHOWN - total, 0)
            total += len(excerpt.text)
            if remaining:
                lines.append(f"[{excerpt.name}]\n{excerpt.text[:remaining]}")
    return TranscriptSearchResult(lines=lines, total=total, last=last)


if __name__ == "__main__":
    signal.alarm(LIFETIME)
    sys.stdout.write(json.dumps(search(TranscriptSearchRequest(**json.load(sys.stdin)))._asdict()))
