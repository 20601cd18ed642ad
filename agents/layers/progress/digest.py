"""Digest of an agent's work for progress summaries by a small model: one line for each block of the conversation."""

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
"""Maximum number of characters of a text by the agent in one line of the digest."""
RECEIVED = 500
"""Maximum number of characters of a tool result or user message to the agent, in one line of the digest."""
VALUE = 200
"""Maximum number of characters of one argument of a tool call in the digest; an argument may be a whole file."""


def entry_of(segment: Segment) -> str | None:
    """Return the digest's line for *segment* (one block of a conversation); None for thinking, images and empty blocks.

    It begins with `calls NAME(`, `gets:` or similar, and contains no line break, so that no text can imitate a line.
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
    """Return *text* on one line with single spaces; if it has more than *limit* characters, cut it and append `…`."""
    # Only a part of a long text is split, to save time; it may consist mostly of white space.
    words = " ".join(text[: 4 * limit].split())
    return f"{words[: limit - 1]}…" if len(words) > limit else words


LATEST = 4
"""A digest over its size limit keeps only its newest part, of at most the limit divided by this number."""


@attrs.define(eq=False)
class Digest:
    """Conversation with a small model about an agent's work: each request lists new work, each answer describes it.

    `read` collects new work, `ask` returns the next request, `answered` keeps it. Each request begins with the bytes of
    the last answered one, which are cached. Over its *size*, the digest keeps only its latest part.
    """

    conversation: Conversation
    """System prompt, and the requests about the agent's work with the small model's answers so far."""
    size: int
    """Maximum number of tokens in a request of the digest; above it, the oldest requests and answers are removed."""
    cached: int | None = None
    """Tokens of the digest in the prompt cache after the last answer; None before one, or once messages were cut."""
    messages: int = 0
    """Number of messages of the agent's conversation that `read` has read so far."""
    _next: int = 0
    """Index of the first segment (block) of the agent's conversation that `read` has not read yet."""
    _epoch: int = 0
    """Epoch of the agent's conversation at the last `read`; it has changed if the conversation was rewritten since."""
    _last: Segment | None = None
    """Segment (block) of the agent's conversation that gave the newest line of the digest; None before that."""
    _new: deque[str] = attrs.field(factory=deque, init=False)
    _new_tokens: int = attrs.field(default=0, init=False)
    _tokens: int = attrs.field(init=False)
    """Tokens of `conversation`: those that the API reported, or an estimate if nothing was answered since a rewrite."""

    def __attrs_post_init__(self) -> None:
        self._tokens = _estimate(self.conversation)

    @classmethod
    def begin(cls, model: Model, agent: Conversation, *, inherited: int = 0, size: int | None = None) -> "Digest":
        """Create a digest of the conversation *agent* for *model*, without its first *inherited* segments.

        A fork inherits those from its parent. Default *size*: the largest prompt in the cheapest price tier of *model*.
        """
        conversation = Conversation.begin(header_without_thinking(model), system=[text_block(render("progress"))])
        start = max(agent.prefix.prompt_length, min(inherited, len(agent)))
        size = size or min(model.window, model.prices[0].up_to or model.window)
        return cls(conversation, size, next=start, epoch=agent.epoch)

    @property
    def has_new_entries(self) -> bool:
        """True if `read` has found work of the agent that no progress summary covers yet."""
        return bool(self._new)

    @property
    def tokens(self) -> int:
        """Tokens of the next request to the small model, partly an estimate."""
        return self._tokens + self._new_tokens

    def read(self, agent: Conversation) -> None:
        """Add lines for new blocks of the conversation *agent* to the next request; keep only the newest if many."""
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
        """Return the next request to the small model: `conversation`, and a message with the new lines at its end.

        `conversation` itself changes only if it is over its size: then only its latest part is kept.
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
        """Make *asked*, which `ask` returned, with its answer *text* the digest's conversation; clear the new lines."""
        asked.append("assistant", [text_block(text)])
        self.conversation = asked
        self._tokens, self.cached = usage.total, usage.prompt - usage.input
        self._new.clear()
        self._new_tokens = 0

    def _find_start(self, agent: Conversation) -> int:
        """Return the index to read from in the rewritten *agent*: after the last read segment, or the first message."""
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
        """Yield the messages of the digest, newest first, up to the token limit `size` divided by `LATEST`."""
        room = self.size // LATEST
        for message in reversed(self.conversation.messages):
            room -= sum(map(estimate_block, message.blocks))
            if room < 0:
                return
            yield message


def _estimate(conversation: Conversation) -> int:
    return sum(estimate_block(segment.data) for segment in conversation.segments)
