"""Tells when the prompt cache gave less than before, and why, unless somebody had announced it."""

import attrs
import msgspec

from coterie.agents.agent import Agent
from coterie.agents.conversation import Conversation, KeyHeader
from coterie.agents.events import CacheBroke, Cause
from coterie.agents.layers.clearing import LIVES
from coterie.agents.model.reply import Reply

SHARE = 0.05
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
class DetectBreaks:
    """Compares each reply with the one before it."""

    _before: _Sent | None = None

    def heard(self, agent: Agent, reply: Reply) -> None:
        """Tell of a break; what was announced for this reply is used up."""
        announced, agent.announced = agent.announced, []
        sent = _Sent(conversation=agent.conversation.fork(), read=reply.usage.read, at=agent.clock.now())
        before, self._before = self._before, sent
        if before is None or announced:
            return
        fall = before.read - sent.read
        if fall > TOKENS and fall > SHARE * before.read:
            cause, detail = _explain(before, sent, LIVES[agent.ttl.last])
            agent.tell(CacheBroke(cause=cause, detail=detail, read_before=before.read, read_now=sent.read))


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
