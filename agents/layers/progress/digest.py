"""Digest of an agent's work for a small model: one line for each block."""

from collections import deque
from collections.abc import Iterator

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import header_without_thinking
from coterie.agents.loop.conversation.prefix import PrefixMessage
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.conversation.token_estimate import estimate_block, estimate_text
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Usage
from coterie.agents.prompts import render
from coterie.memory.compaction.summary_text import block_text

SAID = 2_000
"""Greatest number of characters of the agent's own text in an entry."""
RECEIVED = 500
"""Greatest number of characters of a tool result or of other text for the agent."""
VALUE = 200
"""Greatest number of characters of one argument of a call, which may contain a whole file."""


def entry_of(segment: Segment) -> str | None:
    """Return the digest entry for one block; None for thinking, images and empty blocks.

    An entry has no line break, so that text in a file or message cannot imitate another entry.
    """
    is_own, label, text = segment.role == "assistant", "", ""
    try:
        match msgspec.json.decode(segment.data):
            case {"type": "text", "text": str(said)}:
                label, text = ("says", cut(said, SAID)) if is_own else ("is told", cut(said, RECEIVED))
            case {"type": "tool_use", "name": str(name), "input": dict(members)}:
                texts = [v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in members.values()]
                arguments = (f"{key}={cut(each, VALUE)}" for key, each in zip(members, texts, strict=True))
                return f"calls {name}({', '.join(arguments)})"
            case {"type": "tool_result"} as result:
                label = "gets an error" if result.get("is_error") else "gets"
                text = cut(block_text(segment.data), RECEIVED)
    except ValueError:  # valid JSON with a number that Python cannot represent
        return cut(segment.data.decode(), VALUE)
    return f"{label}: {text}" if text else None


def cut(text: str, limit: int) -> str:
    """Return at most *limit* characters of *text* on one line."""
    # Only a part of a long text is split, to save time; it may consist mostly of white space.
    words = " ".join(text[: 4 * limit].split())
    return f"{words[: limit - 1]}…" if len(words) > limit else words


LATEST = 4
"""A digest over its size limit is reduced to its latest part, the limit divided by this number."""


@attrs.define(eq=False)
class Digest:
    """Short description of an agent's work, as a conversation with a small model.

    `read` adds new work and `ask` sends it. Only answered requests are kept, so that each request begins with the bytes
    of the last one. Over its *size*, the digest begins a new epoch with its latest part.
    """

    conversation: Conversation
    """Answered requests."""
    size: int
    """Size limit in tokens."""
    cached: int | None = None
    """Tokens that the last answer left in the cache; None before the first answer and in a new epoch."""
    messages: int = 0
    """Messages of the agent's conversation that were read."""
    _next: int = 0
    """Index of the next segment of the agent's conversation to read."""
    _epoch: int = 0
    """Epoch of the agent's conversation at the last read."""
    _last: Segment | None = None
    """Segment of the last entry."""
    _new: deque[str] = attrs.field(factory=deque, init=False)
    _new_tokens: int = attrs.field(default=0, init=False)
    _tokens: int = attrs.field(init=False)
    """Tokens of the answered requests."""

    def __attrs_post_init__(self) -> None:
        self._tokens = _estimate(self.conversation)

    @classmethod
    def begin(cls, model: Model, agent: Conversation, *, inherited: int = 0, size: int | None = None) -> "Digest":
        """Create a digest for *model* of the conversation *agent*, without its *inherited* segments.

        By default its size is the prompt size of the cheapest price tier of *model*.
        """
        conversation = Conversation.begin(header_without_thinking(model), system=[text_block(render("progress"))])
        start = max(agent.prefix.prompt_length, min(inherited, len(agent)))
        size = size or min(model.window, model.prices[0].up_to or model.window)
        return cls(conversation, size, next=start, epoch=agent.epoch)

    @property
    def has_new_entries(self) -> bool:
        """True if entries were read that no answer covers."""
        return bool(self._new)

    @property
    def tokens(self) -> int:
        """Tokens of the next request, partly an estimate."""
        return self._tokens + self._new_tokens

    def read(self, agent: Conversation) -> None:
        """Read the new segments of the conversation *agent*; after a rewrite, find the last read one first."""
        start = self._next if agent.epoch == self._epoch else self._find_start(agent)
        for index in range(start, len(agent)):
            segment = agent.prefix[index]
            self.messages += segment.opens_message
            if (entry := entry_of(segment)) is not None:
                self._last = segment
                self._new.append(entry)
                self._new_tokens += estimate_text(entry) + 1
            while self._new_tokens > self.size // LATEST and len(self._new) > 1:
                self._new_tokens -= estimate_text(self._new.popleft()) + 1
        self._next, self._epoch = len(agent), agent.epoch

    def ask(self) -> Conversation:
        """Return a conversation with the new entries at its end, to be sent.

        The digest itself changes only if it is over its size: then it begins a new epoch first.
        """
        if self._tokens + self._new_tokens * 4 // 3 > self.size:
            # A new epoch with the latest messages; its first request reads nothing from the cache.
            latest = list(self._latest())[::-1]
            first = next((index for index, message in enumerate(latest) if message.role == "user"), len(latest))
            self.conversation.rewrite(latest[first:])
            self._tokens, self.cached = _estimate(self.conversation), None
        asked = self.conversation.fork()
        asked.append("user", [text_block(render("progress_work", work="\n".join(self._new)))])
        return asked

    def answered(self, asked: Conversation, text: str, usage: Usage) -> None:
        """Add the conversation that `ask` returned, and its answer *text*, to the digest."""
        asked.append("assistant", [text_block(text)])
        self.conversation = asked
        self._tokens, self.cached = usage.total, usage.prompt - usage.input
        self._new.clear()
        self._new_tokens = 0

    def _find_start(self, agent: Conversation) -> int:
        """Return the index behind the last read segment in a rewritten conversation, or that of the first message."""
        start = agent.prefix.prompt_length
        backwards = range(len(agent) - 1, start - 1, -1)
        return next((index + 1 for index in backwards if self._is_last(agent.prefix[index])), start)

    def _is_last(self, segment: Segment) -> bool:
        last = self._last
        if last is None or last.block_type != segment.block_type:
            return False
        # A cleared result has other bytes but the same call id.
        return segment.data == last.data if last.tool_use_id is None else segment.tool_use_id == last.tool_use_id

    def _latest(self) -> Iterator[PrefixMessage]:
        """Yield the last messages that fit, newest first."""
        room = self.size // LATEST
        for message in reversed(self.conversation.messages):
            room -= sum(map(estimate_block, message.blocks))
            if room < 0:
                return
            yield message


def _estimate(conversation: Conversation) -> int:
    return sum(estimate_block(segment.data) for segment in conversation.segments)
