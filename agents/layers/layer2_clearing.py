"""Layer 2: clearing of old tool results and media from the context."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from coterie.agents.events.layer_events import Mechanism, ResultsCleared
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds, estimate_block
from coterie.agents.loop.model.api_errors import PromptTooLong
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.reply import Reply
from coterie.agents.tools.tool import Tool
from coterie.memory.compaction.result_clearing import (
    ClearableResult,
    ClearableResults,
    clear_results,
    find_media_results,
    make_cache_edits,
    minimum_to_clear,
    remove_media,
)
from coterie.memory.layer_settings import ClearingSettings

API_BETA = "context-management-2025-06-27"
API_MARGIN = 20_000
"""Tokens below the compaction threshold at which the API clears; in a small window the margin is smaller."""
API_MARGIN_PART = 8
"""The margin is at most the threshold divided by this number."""


@attrs.define(eq=False)
class _OldResults:
    """Common base of the clearing mechanisms: finds old results and removes them."""

    settings: ClearingSettings
    _results: ClearableResults

    def find_old(self, agent: Agent) -> Sequence[ClearableResult]:
        """Return all clearable results, oldest first."""
        return self._results.update(agent.conversation.prefix, agent.conversation.epoch)

    def leave_out(self, agent: Agent, *, counts_small: bool = False) -> tuple[int, int]:
        """Begin a new epoch without old results; return how many were cleared, and their estimated tokens.

        The newest `settings.keep` results stay. With *counts_small*, results too small to be cleared count among them.
        """
        results, keep = self.find_old(agent), self.settings.keep
        kept = self._results.newest(keep) if counts_small else {result.id for result in results[-keep:]}
        old = [result for result in results if result.id not in kept]
        if old:
            tokens = result_tokens(agent, old)
            agent.conversation.rewrite(clear_results(agent.conversation.segments, {result.id for result in old}))
            agent.transcript.record(agent.conversation)
            return len(old), tokens
        return 0, 0


@attrs.define(eq=False)
class ClearByTime(_OldResults):
    """Mechanism `time`: clears old results when the cache has expired and must be written again anyway."""

    async def before_call(self, agent: Agent) -> None:
        """Begin a new epoch without old results if the cache entries of the last reply have expired."""
        if not is_cold(agent):
            return
        before = agent.meter.tokens(agent.conversation)
        count, tokens = self.leave_out(agent)
        if count:
            announce_clearing(agent, "time", count, before, before - tokens)


@attrs.define(eq=False)
class ClearByCache(_OldResults):
    """Mechanism `cache`: asks the server to delete old results from the warm cache, without a changed byte."""

    def add_blocks(self, agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return a cache edit if there are too many results; it stays in the conversation and is sent every time."""
        waiting = self.find_old(agent)
        coming = sum(answer.tool is not None and answer.tool.is_clearable for answer in answers)
        if len(waiting) + coming <= self.settings.trigger or is_cold(agent):
            return NOTHING
        old = waiting[: len(waiting) + coming - self.settings.keep]
        before = agent.meter.tokens(agent.conversation)
        announce_clearing(agent, "cache", len(old), before, before - result_tokens(agent, old))
        return AddedBlocks(blocks=(make_cache_edits([result.id for result in old]),)) if old else NOTHING


@attrs.define(eq=False)
class ClearByApi(_OldResults):
    """Mechanism `api`: the API clears old results, controlled by parameters in the key header; see `api_clearing`.

    The API decides anew for each request, so the end of the cleared part would move with every turn and cause a cache
    miss. Therefore results that the API has cleared once are also removed from the conversation.
    """

    _has_cleared: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Emit an event for what the API has cleared."""
        for edit in cleared_by_api(reply):
            if count := edit.get("cleared_tool_uses"):
                after = reply.usage.total
                announce_clearing(agent, "api", count, after + edit["cleared_input_tokens"], after)
                self._has_cleared = True

    async def before_call(self, agent: Agent) -> None:
        """Remove the results that the API has cleared from the conversation."""
        if self._has_cleared:
            self._has_cleared = False
            # Count like the API, which would otherwise clear the rest with the next request.
            if self.leave_out(agent, counts_small=True)[0]:
                agent.announced.append("results cleared by the API left out")


def cleared_by_api(reply: Reply) -> Sequence[Mapping[str, Any]]:
    """Return the context edits that the API reports for the prompt of *reply*."""
    edits: Sequence[Mapping[str, Any]] = (reply.context_management or {}).get("applied_edits", ())
    return edits


def api_clearing(
    header: KeyHeader, model: Model, thresholds: Thresholds, settings: ClearingSettings, tools: Mapping[str, Tool]
) -> KeyHeader:
    """Return *header* with parameters that let the API clear old results shortly before the compaction threshold.

    Results of *tools* that are not clearable are excluded.
    """
    trigger = api_trigger(thresholds)
    price = model.price(trigger)
    least = minimum_to_clear(trigger, write=price.write_5m, read=price.read, turns=settings.expected_turns)
    edit: dict[str, Any] = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": settings.keep},
        "clear_at_least": {"type": "input_tokens", "value": least},
    }
    if excluded := sorted(name for name, tool in tools.items() if not tool.is_clearable):
        edit["exclude_tools"] = excluded
    parameters = msgspec.json.encode({"edits": [edit]})
    return attrs.evolve(header, betas=(*header.betas, API_BETA), context_management=parameters)


def api_trigger(thresholds: Thresholds) -> int:
    """Return the number of prompt tokens at which the API clears.

    A small window has a smaller margin: otherwise the API would clear all the time, and each time the rest is written
    to the cache again.
    """
    return max(1, thresholds.compact - min(API_MARGIN, thresholds.compact // API_MARGIN_PART))


def result_tokens(agent: Agent, results: Sequence[ClearableResult]) -> int:
    """Estimate the tokens of *results*."""
    return sum(estimate_block(agent.conversation.prefix[result.index].data) for result in results)


def is_cold(agent: Agent) -> bool:
    """Return True if the cache entries of the last reply have expired."""
    return agent.replied_at is not None and agent.clock.now() - agent.replied_at > CACHE_LIFETIMES[agent.ttl.last]


def announce_clearing(agent: Agent, mechanism: Mechanism, results: int, before: int, after: int) -> None:
    """Announce the expected cache miss, and emit the event of cleared *results*, with tokens *before* and *after*."""
    agent.announced.append(f"results cleared by {mechanism}")
    agent.emit(
        ResultsCleared(
            mechanism=mechanism,
            results=results,
            tokens_before=before,
            tokens_after=after,
            where=str(agent.transcript.path),
        )
    )


KEPT = 12 * 1024 * 1024
"""Size in bytes up to which the newest media result stays; a larger one may exceed the API's limit alone."""


@attrs.frozen
class MediaClearing:
    """Overflow step that removes images and PDF pages when they are too large or too many for the API."""

    async def on_overflow(self, agent: Agent, overflow: PromptTooLong) -> bool:
        """Begin a new epoch without older media; return False if the text is too long, not the media."""
        segments = agent.conversation.segments
        found = find_media_results(segments) if overflow.is_media else {}
        if not found:
            return False
        newest = list(found)[-1]
        old = [id_ for id_ in found if id_ != newest or len(found) == 1 or found[id_] > KEPT]
        before = agent.meter.tokens(agent.conversation)
        agent.conversation.rewrite(remove_media(segments, old))
        agent.transcript.record(agent.conversation)
        announce_clearing(agent, "size", len(old), before, agent.meter.tokens(agent.conversation))
        return True
