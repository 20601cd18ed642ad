"""Detection of prompt cache misses, in an agent and at the start of a fork."""

import attrs
import msgspec

from coterie.agents.events.layer_events import CacheBroke, Cause
from coterie.agents.layers.layer2_clearing import LIVES
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.loop.model.reply import Reply

BREAK_SHARE = 0.05
TOKENS = 2_000
"""A fall of the cache reads by more than both, of the reads before and in all, is a break."""


@attrs.frozen(kw_only=True)
class _Sent:
    """What one answered call was sent with, and what the cache gave it."""

    conversation: Conversation
    """As it was; it shares its bytes with the one that goes on."""
    read: int
    at: float


@attrs.define(eq=False)
class CacheBreakDetector:
    """Compares each reply with the one before it."""

    _before: _Sent | None = None

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Tell of a break; what was announced for this reply is used up."""
        announced, agent.announced = agent.announced, []
        sent = _Sent(conversation=agent.conversation.fork(), read=reply.usage.read, at=agent.clock.now())
        before, self._before = self._before, sent
        if before is None or announced:
            return
        fall = before.read - sent.read
        if fall > TOKENS and fall > BREAK_SHARE * before.read:
            cause, detail = _explain(before, sent, LIVES[agent.ttl.last])
            agent.emit(CacheBroke(cause=cause, detail=detail, read_before=before.read, read_now=sent.read))


def _explain(before: _Sent, now: _Sent, life: float) -> tuple[Cause, str]:
    old, new = before.conversation, now.conversation
    if changed := _changed_parameter(old.header, new.header):
        return changed
    difference = old.first_difference(new)
    if difference is not None and difference < len(old):
        return _changed_segment(old, difference)
    if now.at - before.at > life:
        return "expired", f"{now.at - before.at:.0f} seconds passed, and the cache keeps what is written for {life:.0f}"
    return "server", "the request began with the same bytes and came in time"


def _changed_parameter(old: KeyHeader, new: KeyHeader) -> tuple[Cause, str] | None:
    for field in attrs.fields(KeyHeader):
        was, is_ = getattr(old, field.name), getattr(new, field.name)
        if was != is_:
            cause: Cause = {"model": "model", "betas": "betas"}.get(field.name, "parameters")  # type: ignore[assignment]  # two literals
            return cause, f"{field.name} was {was!r} and is {is_!r}"
    return None


def _changed_segment(old: Conversation, index: int) -> tuple[Cause, str]:
    segment = old.prefix[index]
    if segment.section == "tools":
        return "tools", f"the tool {msgspec.json.decode(segment.data).get('name')} has changed"
    return segment.section, f"segment {index} of {len(old)}, in {segment.section}, has changed"


FORK_SHARE = 0.01
"""The part of what was expected that may be missing without a word."""


@attrs.define(eq=False)
class ForkSharingCheck:
    """Compares a fork's first reply with what its parent had cached."""

    _point: ForkPoint
    _is_done: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Tell of a shortfall, unless somebody had announced it."""
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
            return "messages", f"what was shared with {point.parent} was rewritten before the first request"
        life = LIVES[point.ttl.last]
        age = 0.0 if point.used_at is None else agent.clock.now() - point.used_at
        if age > life:
            return "expired", f"{point.parent} had used it {age:.0f} seconds ago, and the cache keeps it for {life:.0f}"
        return "server", f"the request began with the bytes of {point.parent} and came in time"
