"""Hooks around the calls and the compactions of an agent, with real commands."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.agent_events import Event, HookRan
from coterie.agents.events.layer_events import Compacted, LayerFailed
from coterie.agents.hooks.hook import Hook, HookEvent
from coterie.agents.hooks.lifecycle_hooks import MAX_OBJECTIONS, CompactionHook, HookMessages, ToolCallHooks
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import run_helper
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.root_link.job_messages import CompactJob, NotCompacted
from coterie.agents.tools.tool import allow_all
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


def make_hooks(agent: Agent, directory: Path, *hooks: tuple[HookEvent, str, str]) -> HookRegistry:
    """Return *hooks*: event, matcher and command of each; their events go to the log of *agent*."""
    return HookRegistry(
        hooks=tuple(Hook(event=event, matcher=matcher, command=word, source="x") for event, matcher, word in hooks),
        facts=lambda: {"session_id": "s"},
        directory=directory,
        environment=dict(os.environ),
        emit=agent.emit,
    )


def fit(agent: Agent, directory: Path, *hooks: tuple[HookEvent, str, str]) -> HookMessages:
    """Attach hooks to *agent*: event, matcher and command of each."""
    remarks = HookMessages()
    authority = Authorizer(Permissions(mode="bypassPermissions"))
    agent.caller = ToolCallHooks(hooks=make_hooks(agent, directory, *hooks), authority=authority, messages=remarks)
    return remarks


def call(name: str, text: str) -> dict[str, Any]:
    return {"id": f"id-{text}", "name": name, "input": {"text": text}}


async def test_hook_messages_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    remark = 'read -r given; text=${given#*\\"text\\": \\"}; text=${text%%\\"*}'
    # The pause lets the hook of b exit after it has made its file.
    wait = "{ while [ ! -e b-is-done ]; do sleep 0.01; done; sleep 0.3; }"
    slow = f'{remark}; [ "$text" = a ] && {wait}; touch $text-is-done'
    script = "default: [{tools: [{Note: {text: a}}, {Note: {text: b}}]}, {text: done}]"
    async with open_agent(script, tmp_path, NotingTool(name="Note")) as (agent, _):
        events = watch(agent)
        remarks = fit(agent, tmp_path, ("PostToolUse", "Note", f"{slow}; echo about $text >&2; exit 2"))
        agent.pipeline = attrs.evolve(agent.pipeline, new_message=(remarks,))
        await run_loop(agent, RunLimits(turns=5))
        assert [event.reason for event in events if isinstance(event, HookRan)] == ["about b", "about a"]
        _, blocks = agent.conversation.messages[2]
        assert [b"about a" in block for block in blocks] == [False, False, True, False]
        assert [b"about b" in block for block in blocks] == [False, False, False, True]


async def test_hooks_run_only_for_matching_known_tools_and_after_success(tmp_path: Path) -> None:
    tools = (NotingTool(name="mcp__files__read"), NotingTool(name="Note"))
    async with open_agent("default: [{text: x}]", tmp_path, *tools) as (agent, _):
        servers, unknown = ("mcp__.*", "echo no servers >&2; exit 2"), ("Nota", "touch hooked; exit 2")
        fit(agent, tmp_path, ("PreToolUse", *servers), ("PreToolUse", *unknown), ("PostToolUse", "", "touch hooked"))
        denied = await agent.caller(agent, call("mcp__files__read", "a"))
        assert (denied.is_error, denied.text.endswith("no servers")) == (True, True)
        assert "did you mean Note?" in (await agent.caller(agent, call("Nota", "a"))).text
        wrong = {"id": "1", "name": "Note", "input": {"txt": "a"}}
        assert (await agent.caller(agent, wrong)).is_error
        assert not (tmp_path / "hooked").exists()
        assert (await agent.caller(agent, call("Note", "a"))).text == "a"
        assert (tmp_path / "hooked").exists()


async def test_helpers_have_no_hooks(tmp_path: Path) -> None:
    script = "default: [{purpose: notes, tools: [{Note: {text: kept}}]}, {purpose: notes, text: x}, {text: one}]"
    heard: list[str] = []

    def until(_reply: object, answers: Sequence[ToolAnswer]) -> bool:
        heard.extend(answer.result.text for answer in answers)
        return False

    async with open_agent(script, tmp_path, NotingTool(name="Note")) as (agent, _):
        fit(agent, tmp_path, ("PreToolUse", "", "touch hooked; exit 2"))
        await run_loop(agent, RunLimits(turns=1))
        await run_helper(agent, "Note it.", "notes", max_turns=2, denial=allow_all, until=until)
    assert heard == ["kept"]
    assert not (tmp_path / "hooked").exists()


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
                steps.append("overruled")
    return steps


@asynccontextmanager
async def hooked_agent(
    directory: Path, turns: int, result: Callable[[str], str], **options: Any
) -> AsyncIterator[tuple[Agent, CompactionStep, list[Event]]]:
    """Open an agent with compaction hooks, whose calls have *result*; yield its compaction and its events too."""
    compact, tool = CompactionStep(), NotingTool(name="Note", act=result)
    options = {"layers": LAYERS, "window": WINDOW, **options}
    async with open_agent(working(turns, SUMMARY), directory, tool, compact=compact, **options) as (agent, _):
        events = watch(agent)
        hooks = make_hooks(agent, directory, ("PreCompact", "", NEVER), ("PostCompact", "", "cat > after"))
        compact.hook = CompactionHook(hooks=hooks)
        agent.pipeline = attrs.evolve(agent.pipeline, compacted=(compact.hook,))
        yield agent, compact, events


async def test_persistent_objection_is_overruled_after_the_limit(tmp_path: Path) -> None:
    async with hooked_agent(tmp_path, 80, long(3_000)) as (agent, _, events):
        assert (await run_loop(agent, LIMITS)).text == "done"
        objections = ["PreCompact block"] * (MAX_OBJECTIONS + 1)
        assert course(events)[: MAX_OBJECTIONS + 3] == [*objections, "overruled", "compacted threshold"]


async def test_full_window_overrules_an_objection(tmp_path: Path) -> None:
    """Each result grows the context to the next threshold; without a compaction the run would end as blocked."""
    async with hooked_agent(tmp_path, 12, long(30_000)) as (agent, _, events):
        ended = await run_loop(agent, LIMITS)
        assert (ended.reason, ended.text) == ("completed", "done")
        steps = course(events)
        assert steps.count("compacted threshold") >= 1
        assert steps[steps.index("overruled") - 1] == "PreCompact block"
        assert steps.index("overruled") <= MAX_OBJECTIONS


async def test_too_long_prompt_is_compacted_despite_an_objection(tmp_path: Path) -> None:
    models = load_models(small_window(tmp_path, 60_000))
    async with hooked_agent(tmp_path, 30, dense(9_000), window=200_000, models=models) as (agent, _, events):
        assert (await run_loop(agent, LIMITS)).text == "done"
        assert course(events)[:3] == ["PreCompact block", "overruled", "compacted overflow"]
        *_, compacted = [event for event in events if isinstance(event, Compacted)]
        given = (tmp_path / "after").read_text()
        assert '"trigger": "auto"' in given
        assert f'"tokens_after": {compacted.tokens_after}' in given


async def test_manual_compaction_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with hooked_agent(tmp_path, 12, long(8_000), window=None) as (agent, compact, events):
        await run_loop(agent, LIMITS)
        answer = await OnDemandCompaction(compact).run_request(agent, CompactJob())
        assert answer == NotCompacted(reason="a PreCompact hook objects to compaction: not now (change it or retry)")
        assert '"trigger": "manual"' in (tmp_path / "told").read_text()
        assert course(events) == ["PreCompact block"]
