"""The digest of an agent's work: a conversation of the small model's own, which only grows."""

from collections import deque
from collections.abc import Iterator

import attrs
import msgspec

from coterie.agents.conversation import Conversation, KeyHeader, Segment, text_block
from coterie.agents.conversation.prefix import Message
from coterie.agents.models import Model
from coterie.agents.progress.entries import entry_of
from coterie.agents.prompt import render
from coterie.agents.tokens import estimate_block, estimate_text
from coterie.agents.usage import Usage

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
    def has_news(self) -> bool:
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
            self._take(segment)
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

    def _take(self, segment: Segment) -> None:
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

    def _latest(self) -> Iterator[Message]:
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
