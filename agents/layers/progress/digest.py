"""Digest of an agent's work for a small model: one line for each block."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.prefix import PrefixMessage
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.conversation.token_estimate import estimate_block, estimate_text
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Usage
from coterie.agents.prompts import render

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


LATEST = 4
"""A digest that has outgrown its size goes on with this part of it, the latest."""


def digest_size(model: Model) -> int:
    """Tokens that a digest may have: what fits the cheapest window that *model* is sold in."""
    return min(model.window, model.prices[0].up_to or model.window)


@attrs.define(eq=False)
class Digest:
    """What an agent has done, in a form that a small model reads for little.

    What is new is taken in by `read` and sent by `ask`; only what has been answered is kept, so that whatever is sent
    begins with the bytes that were sent before. When it has outgrown its *size*, a new epoch begins with the latest
    part of it.
    """

    conversation: Conversation
    """What was asked and answered."""
    size: int
    """Tokens."""
    cached: int | None = None
    """Tokens that the last answer left in the cache; None before one, and in a new epoch."""
    messages: int = 0
    """That the agent's conversation had, as far as it was read."""
    _next: int = 0
    """The segment of the agent's conversation that is read next."""
    _epoch: int = 0
    """Of the agent's conversation."""
    _last: Segment | None = None
    """Which became the last entry."""
    _new: deque[str] = attrs.field(factory=deque, init=False)
    _new_tokens: int = attrs.field(default=0, init=False)
    _tokens: int = attrs.field(init=False)
    """Of what was asked and answered."""

    def __attrs_post_init__(self) -> None:
        self._tokens = _estimate(self.conversation)

    @classmethod
    def begin(cls, model: Model, agent: Conversation, *, inherited: int = 0, size: int | None = None) -> "Digest":
        """A digest for *model* of what *agent* says; the segments that it has *inherited* are not its work."""
        conversation = Conversation.begin(_header(model), system=[text_block(render("progress"))])
        start = max(agent.prefix.prompt_length, min(inherited, len(agent)))
        return cls(conversation, size or digest_size(model), next=start, epoch=agent.epoch)

    @property
    def has_new_entries(self) -> bool:
        """Whether something was read that has not been answered."""
        return bool(self._new)

    @property
    def tokens(self) -> int:
        """Of the next request, in part an estimate."""
        return self._tokens + self._new_tokens

    def read(self, agent: Conversation) -> None:
        """Take in what *agent* has that was not read yet. It costs what is new, and a look back after a rewrite."""
        start = self._next if agent.epoch == self._epoch else self._found_again(agent)
        for index in range(start, len(agent)):
            segment = agent.prefix[index]
            self.messages += segment.opens_message
            self._append_entry(segment)
        self._next, self._epoch = len(agent), agent.epoch

    def ask(self) -> Conversation:
        """The conversation with what is new at its end, to be sent; the digest itself stays as it is.

        But for its size: it may begin a new epoch first.
        """
        if self._tokens + self._new_tokens * 4 // 3 > self.size:
            self._begin_anew()
        asked = self.conversation.fork()
        asked.append("user", [text_block(render("progress_work", work="\n".join(self._new)))])
        return asked

    def answered(self, asked: Conversation, text: str, usage: Usage) -> None:
        """What `ask` gave was answered with *text*: both are part of the digest from now on."""
        asked.append("assistant", [text_block(text)])
        self.conversation = asked
        self._tokens, self.cached = usage.total, usage.prompt - usage.input
        self._new.clear()
        self._new_tokens = 0

    def _append_entry(self, segment: Segment) -> None:
        if (entry := entry_of(segment)) is None:
            return
        self._last = segment
        self._new.append(entry)
        self._new_tokens += estimate_text(entry) + 1
        while self._new_tokens > self.size // LATEST and len(self._new) > 1:
            self._new_tokens -= estimate_text(self._new.popleft()) + 1

    def _found_again(self, agent: Conversation) -> int:
        """Where to go on in a conversation that was rewritten: behind what was read last, if that is still in it."""
        start = agent.prefix.prompt_length
        backwards = range(len(agent) - 1, start - 1, -1)
        return next((index + 1 for index in backwards if self._is_last(agent.prefix[index])), start)

    def _is_last(self, segment: Segment) -> bool:
        last = self._last
        if last is None or last.block_type != segment.block_type:
            return False
        # A result that was cleared has other bytes, and still answers the same call.
        return segment.data == last.data if last.tool_use_id is None else segment.tool_use_id == last.tool_use_id

    def _begin_anew(self) -> None:
        """Begin a new epoch; nobody expects its first request to be in the cache."""
        latest = list(self._latest())[::-1]
        first = next((index for index, message in enumerate(latest) if message.role == "user"), len(latest))
        self.conversation.rewrite(latest[first:])
        self._tokens, self.cached = _estimate(self.conversation), None

    def _latest(self) -> Iterator[PrefixMessage]:
        """The last messages, the last one first."""
        room = self.size // LATEST
        for message in reversed(self.conversation.messages):
            room -= sum(map(estimate_block, message.blocks))
            if room < 0:
                return
            yield message


def _estimate(conversation: Conversation) -> int:
    return sum(estimate_block(segment.data) for segment in conversation.segments)


def _header(model: Model) -> KeyHeader:
    """For an answer at once: there is nothing to think about."""
    if model.thinking == "always":
        return KeyHeader(model=model.id, effort=model.effort_of("low"))
    return KeyHeader(model=model.id, thinking=msgspec.json.encode({"type": "disabled"}))
