"""Hooks around the calls of an agent, with real commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.events.agent_events import HookRan
from coterie.agents.hooks.hook import HookEvent
from coterie.agents.hooks.lifecycle_hooks import HookMessages, ToolCallHooks
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.forks.helper import run_helper
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.tools.tool import allow_all
from tests.agents.hooks.hook_registry import make_hooks
from tests.agents.scripted_agent import NotingTool, open_agent, watch

pytestmark = pytest.mark.slow


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
