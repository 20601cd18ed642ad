"""Detection of unexpected misses of the prompt cache, in an agent and at the start of a fork."""

import attrs
import msgspec

from coterie.agents.events.layer_events import CacheBroke, Cause
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.model.reply import Reply

BREAK_SHARE = 0.05
TOKENS = 2_000
"""Cache reads that fall by more than this share of the last reads, and by more than this many tokens, are a miss."""


@attrs.frozen(kw_only=True)
class _Sent:
    """One answered call: the conversation that was sent, and the tokens read from the cache."""

    conversation: Conversation
    """Fork of the conversation at the time of the call."""
    read: int
    at: float


@attrs.define(eq=False)
class CacheBreakDetector:
    """Reply step that compares the cache reads of each reply with those of the last one."""

    _before: _Sent | None = None

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Emit an event for an unannounced miss; clear the announced ones."""
        announced, agent.announced = agent.announced, []
        sent = _Sent(conversation=agent.conversation.fork(), read=reply.usage.read, at=agent.clock.now())
        before, self._before = self._before, sent
        if before is None or announced:
            return
        fall = before.read - sent.read
        if fall > TOKENS and fall > BREAK_SHARE * before.read:
            cause, detail = _explain(before, sent, CACHE_LIFETIMES[agent.ttl.last])
            agent.emit(CacheBroke(cause=cause, detail=detail, read_before=before.read, read_now=sent.read))


def _explain(before: _Sent, now: _Sent, life: float) -> tuple[Cause, str]:
    old, new = before.conversation, now.conversation
    for field in attrs.fields(KeyHeader):
        was, is_ = getattr(old.header, field.name), getattr(new.header, field.name)
        if was != is_:
            cause: Cause = {"model": "model", "betas": "betas"}.get(field.name, "parameters")  # type: ignore[assignment]  # two literals
            return cause, f"{field.name} was {was!r} and is {is_!r}"
    difference = old.first_difference(new)
    if difference is not None and difference < len(old):
        segment = old.prefix[difference]
        if segment.section == "tools":
            return "tools", f"the tool {msgspec.json.decode(segment.data).get('name')} has changed"
        return segment.section, f"segment {difference} of {len(old)}, in {segment.section}, has changed"
    if now.at - before.at > life:
        return "expired", f"the last call was {now.at - before.at:.0f} s ago, and cache entries live for {life:.0f} s"
    return "server", "the request began with the same bytes, and the cache entries had not expired"


FORK_SHARE = 0.01
"""Share of the expected cache reads that may be missing without an event."""


@attrs.define(eq=False)
class ForkSharingCheck:
    """Reply step that compares the cache reads of a fork's first reply with its parent's cached tokens."""

    _point: ForkPoint
    _is_done: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Emit an event for missing cache reads in the first reply, unless a miss was announced."""
        is_first, self._is_done = not self._is_done, True
        expected, read = self._point.expected_read, reply.usage.read
        if not is_first or expected is None or agent.announced or read >= expected * (1 - FORK_SHARE):
            return
        cause, detail = self._explain(agent)
        agent.emit(CacheBroke(cause=cause, detail=detail, read_before=expected, read_now=read))

    def _explain(self, agent: Agent) -> tuple[Cause, str]:
        point, length = self._point, len(self._point.prefix)
        prefix = agent.conversation.prefix
        if len(prefix) < length or prefix.hash_at(length) != point.hash:
            return "messages", f"the prefix shared with {point.parent} was rewritten before the first request"
        life = CACHE_LIFETIMES[point.ttl.last]
        age = 0.0 if point.used_at is None else agent.clock.now() - point.used_at
        if age > life:
            return "expired", f"{point.parent} used it {age:.0f} s ago, and cache entries live for {life:.0f} s"
        return "server", f"the request began with the bytes of {point.parent}, and the cache entries had not expired"
