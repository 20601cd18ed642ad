"""Hooks around the calls of an agent, with real commands."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.agent import Agent, Answer
from coterie.agents.events import HookRan
from coterie.agents.forks.helpers import ask_helper
from coterie.agents.hooks.calls import HookedCalls
from coterie.agents.hooks.hook import Hook, HookEvent
from coterie.agents.hooks.hooks import Hooks
from coterie.agents.hooks.remarks import Remarks
from coterie.agents.loop import run_loop
from coterie.agents.outcome import Limits
from coterie.agents.permissions import Authority, Permissions
from coterie.agents.tools.tool import permit
from tests.agents.working import Noting, open_agent, watch

pytestmark = pytest.mark.slow


def fit(agent: Agent, directory: Path, *hooks: tuple[HookEvent, str, str]) -> Remarks:
    """Give *agent* hooks: event, matcher and command of each."""
    remarks = Remarks()
    made = Hooks(
        hooks=tuple(Hook(event=event, matcher=matcher, command=word, source="x") for event, matcher, word in hooks),
        facts=dict,
        directory=directory,
        environment=dict(os.environ),
        tell=agent.tell,
    )
    agent.caller = HookedCalls(hooks=made, authority=Authority(Permissions(mode="bypassPermissions")), remarks=remarks)
    return remarks


def call(name: str, text: str) -> dict[str, Any]:
    return {"id": f"id-{text}", "name": name, "input": {"text": text}}


async def test_remarks_stand_in_the_order_of_the_calls_whichever_was_ready_first(tmp_path: Path) -> None:
    remark = 'read -r given; text=${given#*\\"text\\": \\"}; text=${text%%\\"*}'
    slow = f'{remark}; [ "$text" = a ] && while [ ! -e b-is-done ]; do sleep 0.01; done; touch $text-is-done'
    script = "default: [{tools: [{Note: {text: a}}, {Note: {text: b}}]}, {text: done}]"
    async with open_agent(script, tmp_path, Noting(name="Note")) as (agent, _):
        events = watch(agent)
        remarks = fit(agent, tmp_path, ("PostToolUse", "Note", f"{slow}; echo about $text >&2; exit 2"))
        agent.pipeline = attrs.evolve(agent.pipeline, messages=(remarks,))
        await run_loop(agent, Limits(turns=5))
        assert [event.reason for event in events if isinstance(event, HookRan)] == ["about b", "about a"]
        _, blocks = agent.conversation.messages[2]
        assert [b"about a" in block for block in blocks] == [False, False, True, False]
        assert [b"about b" in block for block in blocks] == [False, False, False, True]


async def test_a_matcher_means_the_tools_of_servers_and_no_others(tmp_path: Path) -> None:
    tools = (Noting(name="mcp__files__read"), Noting(name="Read"))
    async with open_agent("default: [{text: x}]", tmp_path, *tools) as (agent, _):
        fit(agent, tmp_path, ("PreToolUse", "mcp__.*", "echo no servers >&2; exit 2"))
        denied = await agent.caller(agent, call("mcp__files__read", "a"))
        assert (denied.is_error, denied.text.endswith("no servers")) == (True, True)
        assert (await agent.caller(agent, call("Read", "a"))).text == "a"


async def test_a_tool_that_there_is_not_concerns_no_hook(tmp_path: Path) -> None:
    async with open_agent("default: [{text: x}]", tmp_path, Noting(name="Note")) as (agent, _):
        fit(agent, tmp_path, ("PreToolUse", "", "touch hooked; exit 2"))
        assert "did you mean Note?" in (await agent.caller(agent, call("Nota", "a"))).text
        assert not (tmp_path / "hooked").exists()


async def test_a_call_that_failed_is_not_remarked_on(tmp_path: Path) -> None:
    async with open_agent("default: [{text: x}]", tmp_path, Noting(name="Note")) as (agent, _):
        fit(agent, tmp_path, ("PostToolUse", "", "touch hooked"))
        wrong = {"id": "1", "name": "Note", "input": {"txt": "a"}}
        assert (await agent.caller(agent, wrong)).is_error
        assert not (tmp_path / "hooked").exists()
        assert not (await agent.caller(agent, call("Note", "a"))).is_error
        assert (tmp_path / "hooked").exists()


async def test_helpers_have_no_hooks(tmp_path: Path) -> None:
    script = "default: [{purpose: notes, tools: [{Note: {text: kept}}]}, {purpose: notes, text: x}, {text: one}]"
    heard: list[str] = []

    def until(_reply: object, answers: Sequence[Answer]) -> bool:
        heard.extend(answer.result.text for answer in answers)
        return False

    async with open_agent(script, tmp_path, Noting(name="Note")) as (agent, _):
        fit(agent, tmp_path, ("PreToolUse", "", "touch hooked; exit 2"))
        await run_loop(agent, Limits(turns=1))
        await ask_helper(agent, "Note it.", "notes", max_turns=2, denial=permit, until=until)
    assert heard == ["kept"]
    assert not (tmp_path / "hooked").exists()
