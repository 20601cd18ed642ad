"""Layer 2: old tool results and excess media leave the context."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from coterie.agents.events.layer_events import Mechanism, ResultsCleared
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
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

LIVES = {"5m": 300.0, "1h": 3600.0}
"""Seconds for which the provider keeps what a marker wrote."""
API_BETA = "context-management-2025-06-27"
API_MARGIN = 20_000
"""Tokens before the compact threshold at which the API clears, at most."""
API_MARGIN_PART = 8
"""The part of the threshold that they are at most."""


@attrs.define(eq=False)
class _OldResults:
    """What the mechanisms share: which results are old, and how they are left out."""

    settings: ClearingSettings
    _results: ClearableResults

    def find_old(self, agent: Agent) -> Sequence[ClearableResult]:
        """All results that may go, the oldest first."""
        return self._results.update(agent.conversation.prefix, agent.conversation.epoch)

    def leave_out(self, agent: Agent, *, counts_small: bool = False) -> tuple[int, int]:
        """Begin a new epoch without all but the newest results; how many went, and about how many tokens.

        With *counts_small*, results too small to be cleared count among the newest.
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
    """Once the cache has gone cold, all must be written again anyway: then old results are left out of it."""

    async def before_call(self, agent: Agent) -> None:
        """Begin a new epoch without old results, if the last reply is older than what it wrote to the cache."""
        if not is_cold(agent):
            return
        before = agent.meter.tokens(agent.conversation)
        count, tokens = self.leave_out(agent)
        if count:
            announce_clearing(agent, "time", count, before, before - tokens)


@attrs.define(eq=False)
class ClearByCache(_OldResults):
    """While the cache is warm, the server is asked to delete old results from it; no byte of ours changes."""

    def add_blocks(self, agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """The edit, if results have piled up; it stays where it is in the conversation, and is so sent again."""
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
    """The API clears by itself, by parameters that stand in the key header from the beginning; see `api_clearing`.

    It clears by what it is sent. So the place where its clearing ends would move with every turn, and the cache break
    there each time: what it has cleared once is left out of the next request for good.
    """

    _has_cleared: bool = False

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Tell what the reply says was cleared."""
        for edit in cleared_by_api(reply):
            if count := edit.get("cleared_tool_uses"):
                after = reply.usage.total
                announce_clearing(agent, "api", count, after + edit["cleared_input_tokens"], after)
                self._has_cleared = True

    async def before_call(self, agent: Agent) -> None:
        """Follow what the API did."""
        if self._has_cleared:
            self._has_cleared = False
            # As the API counts: what it does not keep and is sent again, it clears again at once.
            if self.leave_out(agent, counts_small=True)[0]:
                agent.announced.append("results cleared by the API left out")


def cleared_by_api(reply: Reply) -> Sequence[Mapping[str, Any]]:
    """What the API says it has cleared of the prompt that *reply* answers."""
    edits: Sequence[Mapping[str, Any]] = (reply.context_management or {}).get("applied_edits", ())
    return edits


def api_clearing(
    header: KeyHeader, model: Model, thresholds: Thresholds, settings: ClearingSettings, tools: Mapping[str, Tool]
) -> KeyHeader:
    """*header* with the parameters by which the API clears old results shortly before compaction would come.

    It leaves alone what may not be cleared of *tools*.
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
    """Tokens at which the API clears.

    In a small window that is later than the margin alone would have it: the API would clear all the time, and each time
    what stays is written to the cache again.
    """
    return max(1, thresholds.compact - min(API_MARGIN, thresholds.compact // API_MARGIN_PART))


def clearable_results(tools: Mapping[str, Tool]) -> ClearableResults:
    """The results that an agent with *tools* may lose."""
    return ClearableResults(lambda name: name in tools and tools[name].is_clearable)


def result_tokens(agent: Agent, results: Sequence[ClearableResult]) -> int:
    """About how many tokens *results* take."""
    return sum(estimate_block(agent.conversation.prefix[result.index].data) for result in results)


def is_cold(agent: Agent) -> bool:
    """True if the last reply is older than the lifetime of what it wrote to the cache."""
    return agent.replied_at is not None and agent.clock.now() - agent.replied_at > LIVES[agent.ttl.last]


def announce_clearing(agent: Agent, mechanism: Mechanism, results: int, before: int, after: int) -> None:
    """Announce the cache break of *results* that were cleared, and emit the event; tokens *before* and *after*."""
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
"""Bytes of the newest result that may stay; a larger one may be what is too much by itself."""


@attrs.frozen
class MediaClearing:
    """Without it a conversation that holds too much would be refused again with every turn, whatever it is about."""

    async def on_overflow(self, agent: Agent, overflow: PromptTooLong) -> bool:
        """Begin a new epoch without what the model has looked at before; False if it is the text that is too long."""
        segments = agent.conversation.segments
        found = find_media_results(segments) if overflow.is_media else {}
        if not found:
            return False
        newest = list(found)[-1]
        old = [id_ for id_ in found if id_ != newest or len(found) == 1 or found[id_] > KEPT]
        before = agent.meter.tokens(agent.conversation)
        agent.conversation.rewrite(remove_media(segments, old))
        agent.transcript.record(agent.conversation)
        agent.announced.append("pictures and pages left out")
        agent.emit(
            ResultsCleared(
                mechanism="size",
                results=len(old),
                tokens_before=before,
                tokens_after=agent.meter.tokens(agent.conversation),
                where=str(agent.transcript.path),
            )
        )
        return True
