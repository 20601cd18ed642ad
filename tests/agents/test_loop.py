"""The turn loop against the embedded server: real HTTP, real files, tools of the test's own."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from coterie.agents.conversation import Conversation, KeyHeader, TranscriptWriter, load_transcript
from coterie.agents.errors import ModelUnreachable
from coterie.agents.gate import LocalGate
from coterie.agents.loop import INTERRUPTED, Agent, close_open_calls, run_loop
from coterie.agents.model.client import open_model_client
from coterie.agents.model.request import Identity
from coterie.agents.model.retry import RetryPolicy
from coterie.agents.models import load_models
from coterie.agents.outcome import ReplyArrived, ToolEnded
from coterie.agents.permissions import Permissions
from coterie.agents.tools.tool import Access, ToolResult, Workspace, definition
from coterie.scenarios.server.script.faults import Fault
from tests.servers import Served, open_served

QUICK = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.001)


@attrs.frozen(kw_only=True)
class Note:
    """What the test's tools are called with."""

    text: str = ""


@attrs.frozen(kw_only=True)
class Noting:
    """A tool that does what the test says."""

    name: str
    act: Callable[[str], Any]
    access: Access = "read"
    is_clearable: bool = True
    description: str = "Takes a note."
    input_type: type[attrs.AttrsInstance] = Note

    def touches(self, _arguments: Note, _workspace: Workspace) -> Iterable[Path]:
        """It names no path."""
        return ()

    async def run(self, arguments: Note, _workspace: Workspace) -> ToolResult:
        """Give back what the test's function gives."""
        result = self.act(arguments.text)
        if hasattr(result, "__await__"):
            result = await result
        return ToolResult(text=str(result))


def text(words: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": words})


@asynccontextmanager
async def open_agent(
    script: str,
    directory: Path,
    *tools: Noting,
    mode: Any = "bypassPermissions",
    model: str = "claude-opus-5-5",
    **options: Any,
) -> AsyncIterator[tuple[Agent, Served]]:
    """An agent with a task, or the one whose transcript is in *directory*."""
    with trio.fail_after(20):
        async with (
            open_served(script, **options) as served,
            open_model_client(LocalGate(), base_url=served.url, api_key="k", policy=QUICK) as client,
        ):
            with TranscriptWriter.open(directory / "transcript.jsonl") as transcript:
                begun = transcript.loaded.conversation
                header = KeyHeader(model=model)
                agent = Agent(
                    identity=Identity(agent="main"),
                    model=(options.get("models") or load_models()).get(model),
                    client=client,
                    conversation=begun or Conversation.begin(header, tools=[definition(tool) for tool in tools]),
                    transcript=transcript,
                    tools={tool.name: tool for tool in tools},
                    workspace=Workspace(root=directory, scratch=directory),
                    permissions=Permissions(mode=mode),
                )
                if begun is None:
                    agent.say("user", [text("the task")])
                yield agent, served


async def test_it_works_until_the_model_has_no_more_calls(tmp_path: Path) -> None:
    script = "default: [{thinking: hm, text: one, tools: [{Note: {text: a}}]}, {text: 'done: {{last_tool_result}}'}]"
    steps: list[Any] = []
    async with open_agent(script, tmp_path, Noting(name="Note", act=str.upper)) as (agent, served):
        agent.tell = steps.append
        ended = await run_loop(agent, max_turns=9)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "done: A", 2)
        assert [type(step) for step in steps] == [ReplyArrived, ToolEnded, ReplyArrived]
        assert ended.cost == sum(step.cost for step in steps if isinstance(step, ReplyArrived))
        assert [entry["turn"] for entry in served.requests] == [1, 2]
        recorded = load_transcript(tmp_path / "transcript.jsonl").conversation
        assert recorded is not None
        assert recorded.prefix_bytes() == agent.conversation.prefix_bytes()


async def test_a_call_is_recorded_before_it_runs_and_its_result_before_the_model_sees_it(tmp_path: Path) -> None:
    def recorded(_: str) -> str:
        conversation = load_transcript(tmp_path / "transcript.jsonl").conversation
        assert conversation is not None
        return " ".join(segment.block_type for segment in conversation.segments if segment.role)

    script = "default: [{tools: [{Note: {}}]}, {text: 'saw {{last_tool_result}}'}]"
    async with open_agent(script, tmp_path, Noting(name="Note", act=recorded)) as (agent, _):
        assert (await run_loop(agent, max_turns=9)).text == "saw text tool_use"


async def test_readers_run_together_and_others_alone_and_in_order(tmp_path: Path) -> None:
    running = 0
    seen: list[tuple[str, int]] = []

    async def watch(name: str) -> str:
        nonlocal running
        running += 1
        await trio.testing.wait_all_tasks_blocked()
        seen.append((name, running))
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return name

    tools = (Noting(name="Look", act=watch), Noting(name="Do", act=watch, access="run"))
    calls = "Look: {text: a}}, {Look: {text: b}}, {Do: {text: c}}, {Do: {text: d}}, {Look: {text: e}"
    answer = "{{tool_result.0}}{{tool_result.2}}{{tool_result.4}}"
    script = f"default: [{{tools: [{{{calls}}}]}}, {{text: '{answer}'}}]"
    async with open_agent(script, tmp_path, *tools) as (agent, _):
        assert (await run_loop(agent, max_turns=9)).text == "ace"
    assert sorted(seen[:2]) == [("a", 2), ("b", 2)]
    assert seen[2:] == [("c", 1), ("d", 1), ("e", 1)]


async def test_at_most_ten_readers_run_at_once(tmp_path: Path) -> None:
    running = most = 0

    async def watch(_: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return ""

    calls = ", ".join("{Look: {}}" for _ in range(23))
    script = f"default: [{{tools: [{calls}]}}, {{text: done}}]"
    async with open_agent(script, tmp_path, Noting(name="Look", act=watch)) as (agent, _):
        assert (await run_loop(agent, max_turns=9)).reason == "completed"
    assert most == 10


async def test_a_reply_that_was_cut_is_asked_for_again_with_more_room(tmp_path: Path) -> None:
    async with open_agent(f"default: [{{text: {'x' * 40_000}}}]", tmp_path) as (agent, served):
        ended = await run_loop(agent, max_turns=9)
        assert (ended.reason, len(ended.text), ended.turns) == ("completed", 40_000, 1)
        assert [entry["stop_reason"] for entry in served.requests] == ["max_tokens", "end_turn"]
        assert ended.usage.output == 8_000 + 10_000


async def test_a_reply_larger_than_the_largest_size_is_cut_off(tmp_path: Path) -> None:
    async with open_agent(f"default: [{{text: {'x' * 260_000}}}]", tmp_path) as (agent, served):
        assert (await run_loop(agent, max_turns=9)).reason == "cut_off"
        assert len(served.requests) == 4


async def test_a_paused_turn_goes_on(tmp_path: Path) -> None:
    script = "default: [{text: one, stop: pause_turn}, {text: two}]"
    async with open_agent(script, tmp_path, is_strict=False) as (agent, _):
        ended = await run_loop(agent, max_turns=9)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "two", 2)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("{text: no, stop: refusal}", "refused"), ("{text: x, stop: model_context_window_exceeded}", "prompt_too_long")],
)
async def test_a_stop_reason_ends_it_with_its_own_name(tmp_path: Path, reply: str, reason: str) -> None:
    async with open_agent(f"default: [{reply}]", tmp_path) as (agent, _):
        assert (await run_loop(agent, max_turns=9)).reason == reason


async def test_a_prompt_that_is_too_long_is_told_from_other_refusals(tmp_path: Path) -> None:
    overlay = tmp_path / "models.toml"
    overlay.write_text("[models.claude-opus-5-5]\nwindow = 1\n")
    async with open_agent("default: [{text: x}]", tmp_path, models=load_models(overlay)) as (agent, _):
        ended = await run_loop(agent, max_turns=9)
        assert ended.reason == "prompt_too_long"
        assert ended.error is not None
        assert ended.error.status == 400


async def test_it_ends_at_the_limit_of_turns(tmp_path: Path) -> None:
    script = "default: [{tools: [{Note: {}}], times: always}]"
    async with open_agent(script, tmp_path, Noting(name="Note", act=str)) as (agent, served):
        ended = await run_loop(agent, max_turns=3)
        assert (ended.reason, ended.turns, len(served.requests)) == ("max_turns", 3, 3)


async def test_a_service_that_stays_away_ends_it_with_the_error(tmp_path: Path) -> None:
    async with open_agent("default: [{text: x}]", tmp_path) as (agent, served):
        served.server.control.faults.add(Fault(kind="disconnect", count=None))
        ended = await run_loop(agent, max_turns=9)
        assert ended.reason == "model_error"
        assert isinstance(ended.error, ModelUnreachable)


async def test_a_denied_call_is_answered_and_the_tool_stays_in_the_request(tmp_path: Path) -> None:
    def never(_: str) -> str:
        pytest.fail("a denied tool ran")

    script = "default: [{tools: [{Do: {}}]}, {text: '{{last_tool_result}}'}]"
    tool = Noting(name="Do", act=never, access="run")
    async with open_agent(script, tmp_path, tool, mode="default") as (agent, served):
        assert "not permitted" in (await run_loop(agent, max_turns=9)).text
        first, second = served.requests
        assert first["tools_hash"] == second["tools_hash"]


async def test_a_call_left_open_by_a_crash_gets_an_error_and_is_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []
    script = "default: [{thinking: hm, tools: [{Do: {text: a}}]}, {text: 'told: {{last_tool_result}}'}]"

    async def crash(word: str) -> str:
        ran.append(word)
        raise KeyError(word)

    tool = Noting(name="Do", act=crash, access="run")
    with pytest.RaisesGroup(KeyError, allow_unwrapped=True, flatten_subgroups=True):
        async with open_agent(script, tmp_path, tool) as (agent, _):
            await run_loop(agent, max_turns=9)
    async with open_agent(script, tmp_path, tool) as (agent, served):
        before = agent.conversation.prefix_bytes()
        assert close_open_calls(agent) == 1
        assert (await run_loop(agent, max_turns=9)).text == f"told: {INTERRUPTED}"
        assert agent.conversation.prefix_bytes().startswith(before)
        assert [entry["turn"] for entry in served.requests] == [2]
        assert close_open_calls(agent) == 0
    assert ran == ["a"]


async def test_cancellation_leaves_what_was_recorded(tmp_path: Path) -> None:
    begun = trio.Event()

    async def hang(_: str) -> str:
        begun.set()
        await trio.sleep_forever()
        return ""

    tool = Noting(name="Note", act=hang)
    async with (
        open_agent("default: [{tools: [{Note: {}}]}]", tmp_path, tool) as (agent, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: run_loop(agent, max_turns=9))
        await begun.wait()
        nursery.cancel_scope.cancel()
    loaded = load_transcript(tmp_path / "transcript.jsonl").conversation
    assert loaded is not None
    assert len(loaded.open_tool_uses) == 1
