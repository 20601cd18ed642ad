"""Hooks around a compaction: they may put it off, but nobody is left without room to work in."""

from pathlib import Path

import pytest

from coterie.agents.compaction.by_hand import CompactByHand
from coterie.agents.compaction.step import CompactContext
from coterie.agents.control.compaction_words import Compact, NotCompacted
from coterie.agents.events import Compacted, Event, HookRan, LayerFailed
from coterie.agents.hooks.compacting import AskBeforeCompaction
from coterie.agents.hooks.stopping import IN_A_ROW
from coterie.agents.loop import run_loop
from coterie.agents.models import load_models
from tests.agents.hooks.hooking import hooks_of
from tests.agents.layers.test_compaction import LAYERS, LIMITS, SUMMARY, WINDOW, dense, long, small_window, working
from tests.agents.working import Noting, open_agent, watch

pytestmark = pytest.mark.slow

NEVER = "cat >> told; echo not now >&2; exit 2"


def course(events: list[Event]) -> list[str]:
    """What happened around compactions, in order."""
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


async def test_it_is_put_off_and_then_told_of(tmp_path: Path) -> None:
    objecting = "if [ ! -e once ]; then touch once; echo not now >&2; exit 2; fi"
    compact, tool = CompactContext(), Noting(name="Note", act=long(8_000))
    script = working(22, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        hooks = hooks_of(agent, tmp_path, pre_compact=objecting, post_compact="cat > after")
        compact.hooks = AskBeforeCompaction(hooks=hooks)
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert course(events) == ["PreCompact block", "PreCompact none", "compacted threshold", "PostCompact none"]
        [compacted] = [event for event in events if isinstance(event, Compacted)]
        told = (tmp_path / "after").read_text()
        assert '"trigger": "auto"' in told
        assert f'"tokens_after": {compacted.tokens_after}' in told


async def test_one_that_always_objects_is_heard_so_often_and_no_more(tmp_path: Path) -> None:
    compact, tool = CompactContext(), Noting(name="Note", act=long(3_000))
    script = working(80, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hooks = AskBeforeCompaction(hooks=hooks_of(agent, tmp_path, pre_compact=NEVER))
        assert (await run_loop(agent, LIMITS)).text == "done"
        objections = ["PreCompact block"] * (IN_A_ROW + 1)
        assert course(events)[: IN_A_ROW + 3] == [*objections, "not heeded", "compacted threshold"]


async def test_a_full_window_is_not_argued_with(tmp_path: Path) -> None:
    """Each result brings the context from one threshold near the next: the run would otherwise end as blocked."""
    compact, tool = CompactContext(), Noting(name="Note", act=long(30_000))
    script = working(12, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=WINDOW, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hooks = AskBeforeCompaction(hooks=hooks_of(agent, tmp_path, pre_compact=NEVER))
        ended = await run_loop(agent, LIMITS)
        assert (ended.reason, ended.text) == ("completed", "done")
        steps = course(events)
        assert steps.count("compacted threshold") >= 1
        assert steps[steps.index("not heeded") - 1] == "PreCompact block"
        assert steps.index("not heeded") <= IN_A_ROW


async def test_what_the_api_finds_too_long_is_compacted_whoever_objects(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    compact, tool = CompactContext(), Noting(name="Note", act=dense(9_000))
    script = working(30, SUMMARY)
    async with open_agent(script, tmp_path, tool, layers=LAYERS, window=200_000, compact=compact, models=models) as (
        agent,
        _,
    ):
        events = watch(agent)
        compact.hooks = AskBeforeCompaction(hooks=hooks_of(agent, tmp_path, pre_compact=NEVER))
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert course(events)[:3] == ["PreCompact block", "not heeded", "compacted overflow"]


async def test_by_hand_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    compact, tool = CompactContext(), Noting(name="Note", act=long(8_000))
    async with open_agent(working(12, SUMMARY), tmp_path, tool, layers=LAYERS, compact=compact) as (agent, _):
        events = watch(agent)
        compact.hooks = AskBeforeCompaction(hooks=hooks_of(agent, tmp_path, pre_compact=NEVER))
        await run_loop(agent, LIMITS)
        said = await CompactByHand(compact, lambda _: None).do(agent, Compact(call=1))
        assert said == NotCompacted(call=1, reason="a hook objects: not now")
        assert '"trigger": "manual"' in (tmp_path / "told").read_text()
        assert course(events) == ["PreCompact block"]
