"""Detection of unexpected misses of the prompt cache: between calls of an agent, and in a fork's first call."""

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
"""A fall of the tokens read from the cache by more than this is reported, if it is also over `BREAK_SHARE` of them."""


@attrs.frozen(kw_only=True)
class _Sent:
    """An answered model call: the conversation, the number of tokens read from the prompt cache, and the time."""

    conversation: Conversation
    """Copy of the conversation after the call, to find later which part of it has changed."""
    read: int
    at: float


@attrs.define(eq=False)
class CacheBreakDetector:
    """Pipeline step that reports if a reply reads far fewer tokens from the prompt cache than the previous reply."""

    _before: _Sent | None = None

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Emit `CacheBroke` if *reply* missed the cache and no step announced a reason; clear `agent.announced`."""
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
"""Fraction of a fork's expected cache reads that may be missing in its first reply without an event."""


@attrs.define(eq=False)
class ForkSharingCheck:
    """Pipeline step of a fork: reports if its first reply reads fewer tokens from the cache than its parent stored."""

    _point: ForkPoint
    _is_done: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """For the first reply, emit `CacheBroke` if cache reads are missing, unless a step announced a reason."""
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
            return "expired", f"{point.parent} used the prefix {age:.0f} s ago, and cache entries live for {life:.0f} s"
        return "server", f"the request began with the bytes of {point.parent}, and the cache entries had not expired"
