"""Ledger entries compared with the request log of the embedded server, over real HTTP."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.agents.errors import BudgetSpent, ModelRefusedRequest, ModelUnreachable
from coterie.agents.events.event_log import discard_event
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.loop.model.usage import Usage
from coterie.agents.loop.run_result import RunLimits
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.ledger import Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.ledger_recorder import LedgerRecorder
from coterie.orchestrator.processes.api_server_process import ApiServerHandle
from coterie.scenarios.api_server.script.http_faults import HttpFault
from tests.agents.scripted_agent import QUICK, NotingTool, open_agent
from tests.embedded_server import Served, open_served

MODEL = known_models().get("claude-opus-5-5")
SYSTEM = text_block("Be brief. " * 400)
MAX_TOKENS = 100
MOST = Usage(write_5m=2_667, output=MAX_TOKENS)
"""The most that a call with a prompt of about 2,000 tokens may use."""
REPLIES = """
default:
  - {text: "You said: {{last_user_text}}", times: always}
  - {when: {purpose: summary}, text: It is summed up., times: always}
"""


@attrs.define(eq=False)
class Team:
    """Agents of one process: one client, one gate, one ledger."""

    served: Served
    gate: ModelGateway
    client: ModelClient
    path: Path

    async def ask(
        self, agent: str, talk: Conversation, *, parent: str | None = None, turn: int = 1, **facts: Any
    ) -> Reply:
        """One model call of *agent*, which becomes part of *talk*."""
        rendered = talk.render(max_tokens=MAX_TOKENS)
        request = ModelRequest(
            body=rendered.chunks,
            model=MODEL,
            max_tokens=MAX_TOKENS,
            prompt_tokens=2_000,
            prefix=talk.prefix_hash,
            turn=turn,
            identity=Identity(agent=agent),
            **facts,
        )
        async with self.gate.open_client(agent, parent=parent) as asker:
            reply = await self.client.with_gateway(asker).ask(request)
        talk.sent(rendered)
        talk.append("assistant", [block.data for block in reply.blocks])
        return reply

    def lines(self) -> tuple[LedgerEntry, ...]:
        reading = read_ledger(self.path)
        assert not reading.damaged
        return reading.lines

    async def logged(self) -> list[dict[str, Any]]:
        """The server's own log, asked for over its control side."""
        port, token = self.served.port, self.served.server.control.token
        return await ApiServerHandle(url=self.served.url, port=port, token=token, pid=os.getpid()).requests()


@asynccontextmanager
async def open_team(
    tmp_path: Path, *faults: HttpFault, budget: Decimal | None = None, silence: float = 10.0
) -> AsyncIterator[Team]:
    path = tmp_path / "ledger.jsonl"
    with trio.fail_after(10), Ledger.open(path) as ledger:
        async with (
            open_served(REPLIES) as served,
            # The agent makes its calls through its own gateway client.
            open_model_client(
                LocalGateway(), base_url=served.url, api_key="k", policy=QUICK, silence=silence
            ) as client,
        ):
            books = LedgerRecorder(ledger, served.clock, discard_event)
            gate = ModelGateway(served.clock, budget, settled=books.record)
            for fault in faults:
                served.server.control.faults.add(fault)
            yield Team(served, gate, client, path)


def begin() -> Conversation:
    talk = Conversation.begin(KeyHeader(model=MODEL.id), system=[SYSTEM])
    talk.append("user", [text_block("What is there to do?")])
    return talk


def dollars(lines: Iterable[LedgerEntry]) -> Decimal:
    return sum((line.cost_usd for line in lines), Decimal(0))


def logged_dollars(entries: Iterable[dict[str, Any]]) -> Decimal:
    return sum((Decimal(entry["cost_usd"] or 0) for entry in entries), Decimal(0))


async def _run_team(team: Team) -> None:
    """A lead with two turns, a summary, and three concurrent forks."""
    lead = begin()
    await team.ask("main", lead)
    await team.ask("main", lead.fork_with("", "Sum it up."), purpose="summary")
    lead.append("user", [text_block("Go on.")])
    await team.ask("main", lead, turn=2)
    async with trio.open_nursery() as nursery:
        for name in ("scout-1", "scout-2", "scout-3"):
            fork = lead.fork_with("", f"You are {name}.")
            nursery.start_soon(partial(team.ask, name, fork, parent="main"))


async def test_for_whole_replies_the_sums_are_the_servers_own_to_the_last_digit(tmp_path: Path) -> None:
    faults = (
        HttpFault(kind="cut", agent="scout-1", after=4),
        HttpFault(kind="cut", agent="scout-2", after=0),
        HttpFault(kind="error_event", agent="scout-3", after=2),
        HttpFault(kind="overloaded", agent="main", turn=2),
        HttpFault(kind="disconnect", agent="main", purpose="summary"),
    )
    async with open_team(tmp_path, *faults) as team:
        await _run_team(team)
        lines, entries = team.lines(), await team.logged()
    whole = [line for line in lines if not line.is_estimated]
    answered = [entry for entry in entries if entry["status"] == 200 and entry["error"] is None and not entry["fault"]]
    assert len(whole) == len(answered) == 6
    assert dollars(whole) == logged_dollars(answered) > 0
    for kind, key in (("agent", "agent"), ("purpose", "purpose")):
        for name in {entry[key] for entry in answered}:
            ours = dollars(line for line in whole if getattr(line, kind) == name)
            assert ours == logged_dollars(entry for entry in answered if entry[key] == name)
    broken = [line for line in lines if line.is_estimated]
    assert sorted(line.agent for line in broken) == ["main", "scout-1", "scout-2", "scout-3"]
    for line in broken:
        [entry] = [e for e in entries if (e["agent"], e["purpose"]) == (line.agent, line.purpose) and e["fault"]]
        assert line.cost_usd >= Decimal(entry["cost_usd"] or 0)
    assert all(line.parent == (None if line.agent == "main" else "main") for line in lines)


async def test_interrupted_reply_has_exact_input_and_maximum_output(tmp_path: Path) -> None:
    async with open_team(tmp_path, HttpFault(kind="cut", after=4)) as team:
        reply = await team.ask("main", begin())
        broken, whole = team.lines()
    assert (broken.is_estimated, whole.is_estimated) == (True, False)
    assert whole.usage == reply.usage
    assert (broken.usage.prompt, broken.usage.output) == (reply.usage.prompt, MAX_TOKENS)
    assert broken.prefix == whole.prefix != ""
    assert team.gate.accounts.session.spent == dollars((broken, whole))


async def test_unbilled_or_refused_call_is_not_recorded(tmp_path: Path) -> None:
    faults = HttpFault(kind="overloaded"), HttpFault(kind="error", status=400, error="invalid_request_error")
    async with open_team(tmp_path, *faults) as team:
        with pytest.raises(ModelRefusedRequest):
            await team.ask("main", begin())
        assert team.lines() == ()
    async with open_team(tmp_path, budget=Decimal("0.0001")) as team:
        with pytest.raises(BudgetSpent):
            await team.ask("main", begin())
        assert team.lines() == ()


async def test_timed_out_or_cancelled_call_is_recorded_at_its_maximum(tmp_path: Path) -> None:
    async with open_team(tmp_path, HttpFault(kind="stall", after=0, count=None), silence=0.02) as team:
        with pytest.raises(ModelUnreachable, match="sent nothing for"):
            await team.ask("main", begin())
        lines = team.lines()
    assert [(line.is_estimated, line.usage) for line in lines] == [(True, MOST)] * QUICK.attempts
    async with open_team(tmp_path, HttpFault(kind="stall", after=0)) as team:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(team.ask, "main", begin())
            await wait_all_tasks_blocked(0.02)
            nursery.cancel_scope.cancel()
        *_, cancelled = team.lines()
    assert (cancelled.is_estimated, cancelled.usage) == (True, MOST)


SCRIPT = """
default:
  - {tools: [{note: {text: a}}]}
  - {tools: [{note: {text: b}}]}
  - {tools: [{note: {text: c}}]}
  - {text: done}
"""


async def test_entry_has_the_expected_cache_read(tmp_path: Path) -> None:
    def note(text: str) -> str:
        if text == "c":
            served.clock.advance(301)
        return "noted " * 500

    async with open_agent(SCRIPT, tmp_path, NotingTool(name="note", act=note)) as (agent, served):
        with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
            gate = ModelGateway(served.clock, settled=LedgerRecorder(ledger, served.clock, discard_event).record)
            async with gate.open_client(agent.identity.agent, incarnation=7) as asker:
                agent.client = agent.client.with_gateway(asker)
                assert (await run_loop(agent, RunLimits())).reason == "completed"
    first, second, third, last = read_ledger(tmp_path / "ledger.jsonl").lines
    assert first.expected_read is None
    assert second.expected_read == second.usage.read == first.cached
    assert third.expected_read == third.usage.read == second.cached > 0
    assert (last.expected_read, last.usage.read, last.missed) == (third.cached, 0, third.cached)
    assert first.incarnation == 7
