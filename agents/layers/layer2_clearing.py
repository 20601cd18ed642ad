"""Layer 2: removal of old tool results, images and PDF pages from the context of an agent."""

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
"""Tokens between the prompt size at which the API clears results and the higher threshold of compaction."""
API_MARGIN_PART = 8
"""In a small context window, `API_MARGIN` is reduced to the threshold of compaction divided by this number."""


@attrs.define(eq=False)
class _OldResults:
    """Base class of mechanisms that clear: finds old tool results in the conversation and can remove them."""

    settings: ClearingSettings
    _results: ClearableResults

    def find_old(self, agent: Agent) -> Sequence[ClearableResult]:
        """Return all tool results in the conversation that may be cleared, oldest first."""
        return self._results.update(agent.conversation.prefix, agent.conversation.epoch)

    def leave_out(self, agent: Agent, *, counts_small: bool = False) -> tuple[int, int]:
        """Rewrite the conversation without old tool results; return their number and their estimated tokens.

        The newest `settings.keep` results stay; with *counts_small*, this number includes small and cleared results.
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
    """Mechanism `time`: clears old results when the prompt cache has expired and must be written again anyway."""

    async def before_call(self, agent: Agent) -> None:
        """Remove old tool results from the conversation if the cache entries of the last reply have expired."""
        if not is_cold(agent):
            return
        before = agent.meter.tokens(agent.conversation)
        count, tokens = self.leave_out(agent)
        if count:
            announce_clearing(agent, "time", count, before, before - tokens)


@attrs.define(eq=False)
class ClearByCache(_OldResults):
    """Mechanism `cache`: asks the API to delete old results from its prompt cache; earlier messages stay unchanged."""

    def add_blocks(self, agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return a block that deletes old results from the prompt cache; empty if they are few or the cache expired."""
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
    """Mechanism `api`: the API clears old results, as the request parameters from `api_clearing` tell it.

    The API decides anew for each request, so the end of the cleared part would move with every turn and cause a cache
    miss. Therefore this step also removes old results from the conversation after the API has cleared results.
    """

    _has_cleared: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Emit an event if the API has cleared results from the prompt of *reply*."""
        for edit in cleared_by_api(reply):
            if count := edit.get("cleared_tool_uses"):
                after = reply.usage.total
                announce_clearing(agent, "api", count, after + edit["cleared_input_tokens"], after)
                self._has_cleared = True

    async def before_call(self, agent: Agent) -> None:
        """Remove old results from the conversation if the API has cleared results from the last prompt."""
        if self._has_cleared:
            self._has_cleared = False
            # Count like the API, which would otherwise clear the rest with the next request.
            if self.leave_out(agent, counts_small=True)[0]:
                agent.announced.append("results cleared by the API left out")


def cleared_by_api(reply: Reply) -> Sequence[Mapping[str, Any]]:
    """Return the context edits (removals) that the API reports for the prompt of *reply*; empty if there were none."""
    edits: Sequence[Mapping[str, Any]] = (reply.context_management or {}).get("applied_edits", ())
    return edits


def api_clearing(
    header: KeyHeader, model: Model, thresholds: Thresholds, settings: ClearingSettings, tools: Mapping[str, Tool]
) -> KeyHeader:
    """Return the request parameters *header*, extended so that the API clears old results shortly before a compaction.

    The parameters exclude those *tools* whose results must not be cleared.
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
    """Return the number of prompt tokens from which the API clears old results, somewhat below a compaction.

    In a small context window the distance is smaller. Otherwise the API would clear in nearly every request, and each
    time the remaining prompt would be written to the cache again.
    """
    return max(1, thresholds.compact - min(API_MARGIN, thresholds.compact // API_MARGIN_PART))


def result_tokens(agent: Agent, results: Sequence[ClearableResult]) -> int:
    """Return the estimated tokens of *results*, which are in the agent's conversation."""
    return sum(estimate_block(agent.conversation.prefix[result.index].data) for result in results)


def is_cold(agent: Agent) -> bool:
    """Return True if the prompt cache entries of the agent's last reply have expired; False before the first reply."""
    return agent.replied_at is not None and agent.clock.now() - agent.replied_at > CACHE_LIFETIMES[agent.ttl.last]


def announce_clearing(agent: Agent, mechanism: Mechanism, results: int, before: int, after: int) -> None:
    """Emit the event that *results* (a number) were cleared; announce the cache miss, so that no event reports it."""
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
"""Size in bytes up to which the newest of several results with media stays; a larger one may exceed the API's limit."""


@attrs.frozen
class MediaClearing:
    """Step after a rejected request: removes images and PDF pages if they are too large or too many for the API."""

    async def on_overflow(self, agent: Agent, overflow: PromptTooLong) -> bool:
        """If the API rejected media, remove images and PDFs of older (or big, or sole) tool results; False if none."""
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
