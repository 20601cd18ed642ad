"""The turn loop with the embedded server: real HTTP, real files, and tools of the test."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import trio

from coterie.agents.errors import BudgetSpent, ModelRefusedRequest, ModelUnreachable
from coterie.agents.events.agent_events import Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.agents.loop.agent import UNREADABLE, Durability
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.agents.loop.loop import INTERRUPTED, close_open_calls, run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.tools.tool import Tool, Workspace
from coterie.files import file_faults
from coterie.scenarios.api_server.http.http_connection import HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from coterie.scenarios.api_server.script.http_faults import HttpFault
from tests.agents.loop.model.test_stream_decoders import START, block, call, ending, lines
from tests.agents.scripted_agent import NotingTool, of_type, open_agent, watch
from tests.scenarios.api_server.http.http_peer import serving

NINE = RunLimits(turns=9)


async def hang(_: str) -> str:
    await trio.sleep_forever()
    return ""


def never(_: str) -> str:
    pytest.fail("the tool ran")


async def test_loop_runs_until_model_makes_no_calls(tmp_path: Path) -> None:
    last = "{content: [{redacted_thinking: secret}, {text: 'done: {{last_tool_result}}'}]}"
    script = f"default: [{{thinking: hm, text: one, tools: [{{Note: {{text: a}}}}]}}, {last}]"
    async with open_agent(script, tmp_path, NotingTool(name="Note", act=str.upper)) as (agent, served):
        events = watch(agent)
        ended = await run_loop(agent, NINE)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "done: A", 2)
        assert [type(event) for event in events] == [TextEmitted, ToolStarted, ToolEnded, TextEmitted]
        assert ended.cost == sum(Decimal(entry["cost_usd"]) for entry in served.requests)
        assert [entry["turn"] for entry in served.requests] == [1, 2]
        recorded = load_transcript(tmp_path / "transcript.jsonl").conversation
        assert recorded is not None
        assert recorded.prefix_bytes() == agent.conversation.prefix_bytes()


async def test_readers_run_together_and_other_calls_alone_in_order(tmp_path: Path) -> None:
    """At most ten calls run at the same time."""
    running = most = 0
    seen: list[tuple[str, int]] = []

    async def watch(name: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        seen.append((name, running))
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return name

    tools = (NotingTool(name="Look", act=watch), NotingTool(name="Do", act=watch, access="run"))
    calls = "Look: {text: a}}, {Look: {text: b}}, {Do: {text: c}}, {Do: {text: d}}, {Look: {text: e}"
    answer = "{{tool_result.0}}{{tool_result.2}}{{tool_result.4}}"
    many = ", ".join("{Look: {text: x}}" for _ in range(23))
    script = f"default: [{{tools: [{{{calls}}}]}}, {{text: '{answer}'}}, {{tools: [{many}]}}, {{text: done}}]"
    async with open_agent(script, tmp_path, *tools) as (agent, _):
        assert (await run_loop(agent, NINE)).text == "ace"
        assert most == 2
        agent.append_message("user", [text_block("more")])
        assert (await run_loop(agent, NINE)).text == "done"
        assert most == 10
    assert sorted(seen[:2]) == [("a", 2), ("b", 2)]
    assert seen[2:5] == [("c", 1), ("d", 1), ("e", 1)]


async def test_cut_off_reply_is_requested_again_with_larger_limit(tmp_path: Path) -> None:
    """A retry of the model client is an event."""
    async with open_agent(f"default: [{{text: {'x' * 40_000}}}]", tmp_path) as (agent, served):
        served.server.control.faults.add(HttpFault(kind="error", status=529))
        events = watch(agent)
        ended = await run_loop(agent, NINE)
        assert [event.error for event in of_type(events, Retrying)] == ["529 api_error: injected fault: error"]
        assert (ended.reason, len(ended.text), ended.turns) == ("completed", 40_000, 1)
        assert [entry["stop_reason"] for entry in served.requests] == [None, "max_tokens", "end_turn"]
        assert ended.usage.output == 8_000 + 10_000


async def test_paused_turn_continues(tmp_path: Path) -> None:
    script = "default: [{text: one, stop: pause_turn}, {text: two}]"
    async with open_agent(script, tmp_path, is_strict=False) as (agent, _):
        ended = await run_loop(agent, NINE)
        assert (ended.reason, ended.text, ended.turns) == ("completed", "two", 2)


@pytest.mark.parametrize(
    ("reply", "limits", "reason", "error", "requests"),
    [
        ("{text: no, stop: refusal}", NINE, "refused", None, 1),
        ("{text: x, stop: model_context_window_exceeded}", NINE, "prompt_too_long", None, 1),
        (f"{{text: {'x' * 260_000}}}", NINE, "cut_off", None, 4),
        ("{tools: [{Note: {}}], times: always}", RunLimits(turns=3), "max_turns", None, 3),
        ("{tools: [{Hang: {}}]}", RunLimits(seconds=0.2), "budget", None, 1),
        ("{text: x}", NINE, "budget", BudgetSpent, 0),
        ("{text: x, fault: {kind: disconnect, count: always}}", NINE, "model_error", ModelUnreachable, 2),
        (f"{{tools: [{{Note: {{text: {'x' * 900_000}}}}}]}}", NINE, "prompt_too_long", ModelRefusedRequest, 1),
    ],
    ids=[
        "refusal",
        "full window",
        "over the largest limit",
        "turns",
        "seconds",
        "budget",
        "unreachable",
        "too long prompt",
    ],
)
async def test_run_ends_with_reason(
    tmp_path: Path, reply: str, limits: RunLimits, reason: str, error: type[Exception] | None, requests: int
) -> None:
    tools = NotingTool(name="Note"), NotingTool(name="Hang", act=hang)
    overlay = tmp_path / "models.toml"
    overlay.write_text(f"[models.claude-opus-5-5]\nwindow = {1 if error is ModelRefusedRequest else 200_000}\n")
    gate = LocalGateway(budget=Decimal(0) if error is BudgetSpent else None)
    options: dict[str, Any] = {"models": load_models(overlay), "gate": gate}
    async with open_agent(f"default: [{reply}]", tmp_path, *tools, **options) as (agent, served):
        ended = await run_loop(agent, limits)
        assert (ended.reason, type(ended.error)) == (reason, error or type(None))
        assert agent.conversation.open_tool_uses == [] or reason == "max_turns"
        assert len(served.requests) == requests


async def test_denied_call_is_answered_and_tool_stays_in_request(tmp_path: Path) -> None:
    async def deny(tool: Tool, _arguments: Any, _workspace: Workspace) -> str:
        return f"{tool.name} is not for you"

    script = "default: [{tools: [{Do: {}}]}, {text: '{{last_tool_result}}'}]"
    tool = NotingTool(name="Do", act=never, access="run")
    async with open_agent(script, tmp_path, tool, denial=deny) as (agent, served):
        assert (await run_loop(agent, NINE)).text == "Do is not for you"
        first, second = served.requests
        assert first["tools_hash"] == second["tools_hash"]


async def test_open_call_after_crash_gets_error_and_is_not_run_again(tmp_path: Path) -> None:
    ran: list[str] = []
    script = "default: [{thinking: hm, tools: [{Do: {text: a}}]}, {text: 'told: {{last_tool_result}}'}]"

    async def crash(word: str) -> str:
        ran.append(word)
        raise KeyError(word)

    tool = NotingTool(name="Do", act=crash, access="run")
    with pytest.RaisesGroup(KeyError, allow_unwrapped=True, flatten_subgroups=True):
        async with open_agent(script, tmp_path, tool) as (agent, _):
            await run_loop(agent, NINE)
    loaded = load_transcript(tmp_path / "transcript.jsonl").conversation
    assert loaded is not None
    assert len(loaded.open_tool_uses) == 1
    async with open_agent(script, tmp_path, tool) as (agent, served):
        before = agent.conversation.prefix_bytes()
        assert close_open_calls(agent) == 1
        assert (await run_loop(agent, NINE)).text == f"told: {INTERRUPTED.text}"
        assert agent.conversation.prefix_bytes().startswith(before)
        assert [entry["turn"] for entry in served.requests] == [2]
        assert close_open_calls(agent) == 0
    assert ran == ["a"]


async def test_interrupted_turn_keeps_results_and_can_continue(tmp_path: Path) -> None:
    begun = trio.Event()

    async def hang(word: str) -> str:
        if word == "quick":
            return "quick is done"
        begun.set()
        await trio.sleep_forever()
        return ""

    answer = "{{tool_result.0}}, {{tool_result.1}}"
    script = f"default: [{{tools: [{{Note: {{text: quick}}}}, {{Do: {{text: slow}}}}]}}, {{text: '{answer}'}}]"
    tools = (NotingTool(name="Note", act=hang), NotingTool(name="Do", act=hang, access="run"))
    async with open_agent(script, tmp_path, *tools) as (agent, _), trio.open_nursery() as nursery:

        async def interrupt() -> None:
            await begun.wait()
            agent.interrupt()

        nursery.start_soon(interrupt)
        ended = await run_loop(agent, NINE)
        assert (ended.reason, ended.turns) == ("cancelled", 1)
        assert agent.conversation.open_tool_uses == []
        assert (await run_loop(agent, NINE)).text == f"quick is done, {INTERRUPTED.text}"


async def test_limit_of_tokens_ends_run_before_next_call(tmp_path: Path) -> None:
    script = "default: [{tools: [{Note: {}}], times: always}]"
    async with open_agent(script, tmp_path, NotingTool(name="Note")) as (agent, served):
        ended = await run_loop(agent, RunLimits(tokens=300))
        assert ended.reason == "budget"
        *others, _ = served.requests
        assert ended.usage.total >= 300
        assert sum(entry["usage"]["input_tokens"] for entry in others) < 300


async def test_resumed_agent_continues_turn_number_and_token_count(tmp_path: Path) -> None:
    script = "default: [{tools: [{Note: {text: a}}]}, {text: done}, {text: again}]"
    async with open_agent(script, tmp_path, NotingTool(name="Note")) as (agent, _):
        await run_loop(agent, NINE)
        tokens = agent.meter.tokens(agent.conversation)
        turn = agent.turn
    async with open_agent(script, tmp_path, NotingTool(name="Note")) as (agent, _):
        assert agent.turn == turn == 3
        assert agent.meter.tokens(agent.conversation) == tokens
        assert agent.replied_at is not None


async def test_call_with_invalid_json_is_answered_and_not_run(tmp_path: Path) -> None:
    """No script can produce such a reply, so a server of the test streams it once."""
    events = [START, *block(0, *call('{"text": }')), *ending("tool_use")]

    async def answer(_request: HttpRequest, respond: Responder) -> None:
        agent.client = scripted  # for the next call, which may come before this one has returned
        await respond.start(200, [("content-type", "text/event-stream")])
        await respond.write("".join(map(lines, events)).encode())
        await respond.finish()

    script = "default: [{text: unused}, {text: '{{last_tool_result}}'}]"
    async with open_agent(script, tmp_path, NotingTool(name="Read", act=never)) as (agent, _), serving(answer) as port:
        scripted = agent.client
        async with open_model_client(LocalGateway(), base_url=f"http://127.0.0.1:{port}", api_key="k") as client:
            agent.client = client
            assert (await run_loop(agent, NINE)).text == UNREADABLE.text


@pytest.mark.parametrize(("durability", "syncs"), [("never", 0), ("turn", 2), ("always", 3)])
async def test_transcript_is_synced_as_often_as_configured(tmp_path: Path, durability: Durability, syncs: int) -> None:
    """The script has two model calls and one turn with tool calls. The call is recorded before it runs."""
    counted: list[Path] = []

    class Counting:
        def before(self, operation: str, path: Path, size: int) -> int:
            if operation == "fsync":
                counted.append(path)
            return size

    def recorded(_: str) -> str:
        conversation = load_transcript(tmp_path / "transcript.jsonl").conversation
        assert conversation is not None
        return " ".join(segment.block_type for segment in conversation.segments if segment.role)

    script = "default: [{tools: [{Note: {}}]}, {text: 'saw {{last_tool_result}}'}]"
    async with open_agent(script, tmp_path, NotingTool(name="Note", act=recorded)) as (agent, _):
        agent.durability = durability
        with file_faults(Counting()):
            assert (await run_loop(agent, NINE)).text == "saw text tool_use"
    assert counted == [tmp_path / "transcript.jsonl"] * syncs
