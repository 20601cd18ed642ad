"""Hooks around a compaction, which they may postpone unless the window is full."""

from pathlib import Path

import attrs
import pytest

from coterie.agents.events.agent_events import Event, HookRan
from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.hooks.lifecycle_hooks import MAX_OBJECTIONS, CompactionHook
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.root_link.job_messages import CompactJob, NotCompacted
from tests.agents.hooks.hook_registry import make_hooks
from tests.agents.layers.test_layer4_compaction import (
    LAYERS,
    LIMITS,
    SUMMARY,
    WINDOW,
    dense,
    long,
    small_window,
    working,
)
from tests.agents.scripted_agent import NotingTool, open_agent, watch

pytestmark = pytest.mark.slow

NEVER = "cat >> told; echo not now >&2; exit 2"


def course(events: list[Event]) -> list[str]:
    """Return the events around compactions, in order."""
    steps = []
    for event in events:
        match event:
            case HookRan():
                steps.append(f"{event.event} {event.decision}")
            case Compacted():
                steps.append(f"compacted {event.trigger}")
            case LayerFailed(layer="hooks"):
                steps.append("not heeded")
    return steps


async def test_blocked_compaction_is_postponed_and_reported_later(tmp_path: Path) -> None:
    objecting = "if [ ! -e once ]; then touch once; echo not now >&2; exit 2; fi"
    compact, tool = CompactionStep(), NotingTool(name="Note", act=long(8_000))
    script = working(22, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        hooks = make_hooks(agent, tmp_path, pre_compact=objecting, post_compact="cat > after")
        compact.hook = CompactionHook(hooks=hooks)
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert course(events) == ["PreCompact block", "PreCompact none", "compacted threshold", "PostCompact none"]
        [compacted] = [event for event in events if isinstance(event, Compacted)]
        told = (tmp_path / "after").read_text()
        assert '"trigger": "auto"' in told
        assert f'"tokens_after": {compacted.tokens_after}' in told


async def test_persistent_objection_is_overruled_after_the_limit(tmp_path: Path) -> None:
    compact, tool = CompactionStep(), NotingTool(name="Note", act=long(3_000))
    script = working(80, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hook = CompactionHook(hooks=make_hooks(agent, tmp_path, pre_compact=NEVER))
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        assert (await run_loop(agent, LIMITS)).text == "done"
        objections = ["PreCompact block"] * (MAX_OBJECTIONS + 1)
        assert course(events)[: MAX_OBJECTIONS + 3] == [*objections, "not heeded", "compacted threshold"]


async def test_full_window_overrules_an_objection(tmp_path: Path) -> None:
    """Each result grows the context to the next threshold; without a compaction the run would end as blocked."""
    compact, tool = CompactionStep(), NotingTool(name="Note", act=long(30_000))
    script = working(12, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hook = CompactionHook(hooks=make_hooks(agent, tmp_path, pre_compact=NEVER))
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        ended = await run_loop(agent, LIMITS)
        assert (ended.reason, ended.text) == ("completed", "done")
        steps = course(events)
        assert steps.count("compacted threshold") >= 1
        assert steps[steps.index("not heeded") - 1] == "PreCompact block"
        assert steps.index("not heeded") <= MAX_OBJECTIONS


async def test_too_long_prompt_is_compacted_despite_an_objection(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    compact, tool = CompactionStep(), NotingTool(name="Note", act=dense(9_000))
    script = working(30, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=200_000, compact=compact, models=models) as (
        agent,
        _,
    ):
        events = watch(agent)
        compact.hook = CompactionHook(hooks=make_hooks(agent, tmp_path, pre_compact=NEVER))
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert course(events)[:3] == ["PreCompact block", "not heeded", "compacted overflow"]


async def test_manual_compaction_is_refused_with_the_reason(tmp_path: Path) -> None:
    compact, tool = CompactionStep(), NotingTool(name="Note", act=long(8_000))
    async with open_agent(working(12, SUMMARY), tmp_path, tool, layers=LAYERS, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hook = CompactionHook(hooks=make_hooks(agent, tmp_path, pre_compact=NEVER))
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        await run_loop(agent, LIMITS)
        said = await OnDemandCompaction(compact).run_request(agent, CompactJob())
        assert said == NotCompacted(reason="a hook objects: not now")
        assert '"trigger": "manual"' in (tmp_path / "told").read_text()
        assert course(events) == ["PreCompact block"]
