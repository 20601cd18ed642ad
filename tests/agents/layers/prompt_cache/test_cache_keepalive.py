"""Keepalive of a waiting agent's cached prefix, with the embedded server and a simulated clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from coterie.agents.events.event_log import discard_event
from coterie.agents.layers.prompt_cache import keepalive
from coterie.agents.layers.prompt_cache.keepalive import (
    LEAST_LOSS,
    CacheKeepalive,
    keepalive_plan,
    refresh_prefix,
    refreshes_needed,
    safe_lifetime,
    sleep_until,
)
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.agents.loop.run_result import RunLimits
from coterie.clock import Clock
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.gateway.ledger import Ledger, LedgerEntry, read_ledger
from coterie.orchestrator.gateway.ledger_recorder import LedgerRecorder
from tests.agents.scripted_agent import NotingTool, ObservedAgent, open_agent, watch
from tests.examples import examples

MINUTE = 60.0
SCRIPT = """
main:
  - {tools: [{note: {text: a}}]}
  - {text: "I wait.", times: always}
  - {when: {purpose: refresh}, text: x, times: always}
"""


@attrs.define(eq=False)
class Passing:
    """Simulated time, which passes immediately when the keepalive sleeps, until the wait is over."""

    left: float = 0.0
    asked: list[float] = attrs.field(factory=list)
    """Times until which the keepalive slept."""
    is_over: trio.Event = attrs.field(factory=trio.Event)

    async def sleep_until(self, clock: Clock, at: float) -> None:
        """Move *clock* to *at*; sleep forever after the end of the wait."""
        self.asked.append(at)
        seconds = max(0.0, min(self.left, at - clock.now()))
        clock.advance(seconds)
        self.left -= seconds
        if self.left <= 0:
            self.is_over.set()
            await trio.sleep_forever()


@attrs.frozen(kw_only=True)
class Parent(ObservedAgent):
    """An agent with a long conversation and a keepalive."""

    keeper: CacheKeepalive
    passing: Passing
    gate: ModelGateway
    ledger: Path

    def begin_wait(self, seconds: float) -> None:
        """Let the next wait end when the keepalive has slept *seconds*."""
        self.passing.left, self.passing.is_over = seconds, trio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for other agents."""
        self.begin_wait(seconds)
        async with self.keeper.waiting():
            await self.passing.is_over.wait()

    async def wait_until_failure(self) -> None:
        """Wait for other agents until a refresh has failed and another could have begun."""
        self.begin_wait(20 * MINUTE)
        async with self.keeper.waiting():
            while not self.failures:
                await wait_all_tasks_blocked(0.001)
            await wait_all_tasks_blocked(0.02)

    async def go_on(self) -> dict[str, Any]:
        """Run one turn after the wait, and return its usage."""
        await self.run("They have reported.")
        usage: dict[str, Any] = self.requests("turn")[-1]["usage"]
        return usage

    @property
    def cached(self) -> int:
        """Tokens that the last turn left in the cache."""
        usage = self.requests("turn")[-1]["usage"]
        return int(usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])

    @property
    def spent(self) -> Decimal:
        """Dollars spent according to the gateway."""
        return self.gate.accounts.session.spent

    def lines(self, purpose: str) -> list[LedgerEntry]:
        return [line for line in read_ledger(self.ledger).lines if line.purpose == purpose]


@asynccontextmanager
async def open_parent(
    directory: Path, script: str = SCRIPT, *, words: int = 5_000, model: str = "claude-opus-5-5"
) -> AsyncIterator[Parent]:
    """Open a parent with a ledger that is about to wait."""
    passing, path = Passing(), directory / "ledger.jsonl"
    tool = NotingTool(name="note", act=lambda _: "code " * words)
    async with open_agent(script, directory, tool, model=model) as (agent, served):
        with Ledger.open(path) as ledger:
            gate = ModelGateway(served.clock, settled=LedgerRecorder(ledger, served.clock, discard_event).record)
            events = watch(agent)
            keeper, pipeline = CacheKeepalive(agent, passing.sleep_until), agent.pipeline
            agent.pipeline = attrs.evolve(
                pipeline, before_call=(*pipeline.before_call, keeper), reply=(*pipeline.reply, keeper)
            )
            async with gate.open_client(agent.identity.agent) as asker, keeper.open():
                agent.client = agent.client.with_gateway(asker)
                assert await refresh_prefix(agent) is None, "nothing is cached yet"
                await run_loop(agent, RunLimits())
                yield Parent(
                    agent=agent, events=events, served=served, keeper=keeper, passing=passing, gate=gate, ledger=path
                )


@pytest.mark.parametrize(("model", "output"), [("claude-opus-5-5", 1), ("claude-sonnet-4-5", 0)])
async def test_prefix_is_read_from_cache_after_twenty_minutes_of_waiting(
    tmp_path: Path, model: str, output: int
) -> None:
    """Overlapping waits are one wait."""
    async with open_parent(tmp_path, model=model) as parent:
        before, written, cached = parent.agent.conversation.prefix_hash, parent.ledger, parent.cached
        transcript = parent.agent.transcript.path.read_bytes()
        parent.begin_wait(20 * MINUTE)
        async with parent.keeper.waiting():
            async with parent.keeper.waiting(), parent.keeper.waiting():
                pass
            await parent.passing.is_over.wait()
        assert parent.agent.conversation.prefix_hash == before
        assert parent.agent.transcript.path.read_bytes() == transcript
        refreshes = parent.lines("refresh")
        assert [(line.usage.read, line.usage.write_5m, line.usage.output) for line in refreshes] == [
            (cached, 0, output)
        ] * 4
        assert parent.agent.replied_at is not None
        assert parent.passing.asked[0] < parent.agent.replied_at + safe_lifetime("5m"), "it counts from the request"
        assert (await parent.go_on())["cache_read_input_tokens"] == cached
        assert sum(line.cost_usd for line in read_ledger(written).lines) == parent.spent


@pytest.mark.parametrize(
    ("seconds", "words", "age"), [(20.0, 5_000, 0), (20 * MINUTE, 500, 0), (20 * MINUTE, 5_000, 301)]
)
async def test_short_wait_or_cheap_or_expired_prefix_causes_no_refresh(
    tmp_path: Path, seconds: float, words: int, age: float
) -> None:
    async with open_parent(tmp_path, words=words) as parent:
        parent.begin_wait(seconds)
        parent.served.clock.advance(age)
        async with parent.keeper.waiting():
            await wait_all_tasks_blocked(0.02)
            assert parent.passing.is_over.is_set() == (seconds == 20.0)
        assert parent.requests("refresh") == []


async def test_refreshes_of_long_wait_stop_when_they_cost_the_loss(tmp_path: Path) -> None:
    async with open_parent(tmp_path, model="claude-opus-5") as parent:
        upkeep = keepalive_plan(parent.agent.model, prefix_tokens=parent.cached, ttl="5m")
        most = int(upkeep.loss / upkeep.refresh)
        parent.begin_wait(24 * 60 * MINUTE)
        async with parent.keeper.waiting():
            while len(parent.lines("refresh")) < most:
                await wait_all_tasks_blocked(0.001)
            await wait_all_tasks_blocked(0.02)
        assert len(parent.requests("refresh")) == most == 11
        assert sum(line.cost_usd for line in parent.lines("refresh")) <= upkeep.loss
        parent.served.clock.advance(301)
        assert (await parent.go_on())["cache_read_input_tokens"] == 0


REFUSING = SCRIPT.replace("purpose: refresh", "purpose: notes")


@pytest.mark.parametrize(
    ("script", "reason"),
    [(REFUSING, "400"), (SCRIPT, "raise the budget"), (SCRIPT, "before the cache entry expired")],
    ids=["refused", "spent budget", "cool-down"],
)
async def test_failed_refresh_is_event_and_last_one_of_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    async with open_parent(tmp_path, script) as parent:
        account = parent.gate.accounts.agents[parent.agent.identity.agent]
        if "budget" in reason:
            account.limit = parent.spent
        if "before" in reason:
            monkeypatch.setattr(keepalive, "MARGIN", 0.02)
            parent.gate.cool_down(1_000)
        await parent.wait_until_failure()
        [failure] = parent.failures
        assert reason in failure
        assert len(parent.requests("refresh")) == (reason == "400")
        assert parent.lines("refresh") == []
        if "before" not in reason:
            account.limit = None
            await parent.go_on()


async def test_running_refresh_is_cancelled_with_wait_and_costs_its_maximum(tmp_path: Path) -> None:
    slow = SCRIPT.replace("text: x", "text: x, delay: 60")
    async with open_parent(tmp_path, slow) as parent:
        parent.begin_wait(20 * MINUTE)
        async with parent.keeper.waiting():
            await wait_all_tasks_blocked(0.02)
        [line] = parent.lines("refresh")
        assert line.is_estimated
        assert line.usage.write_5m > parent.cached
        assert parent.failures == []
        await parent.go_on()
        assert not parent.lines("turn")[-1].is_estimated


async def test_long_waits_with_few_writes_select_ttl_of_an_hour_until_a_short_wait(tmp_path: Path) -> None:
    """The first long wait alone decides nothing, because many tokens were written before it."""
    async with open_parent(tmp_path) as parent:
        await parent.wait(20 * MINUTE)
        assert (await parent.go_on())["cache_creation"]["ephemeral_1h_input_tokens"] == 0
        before = parent.cached
        await parent.wait(20 * MINUTE)
        turn = await parent.go_on()
        assert turn["cache_read_input_tokens"] == before, "another life does not break the prefix"
        assert turn["cache_creation"]["ephemeral_1h_input_tokens"] > 0
        count, cached = len(parent.requests("refresh")), parent.cached
        await parent.wait(20 * MINUTE)
        assert len(parent.requests("refresh")) == count
        assert (await parent.go_on())["cache_read_input_tokens"] == cached
        await parent.wait(20.0)
        turn = await parent.go_on()
        assert turn["cache_creation"]["ephemeral_1h_input_tokens"] == 0
        assert turn["cache_creation"]["ephemeral_5m_input_tokens"] > 0


async def test_sleep_until_notices_changed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "CLOCK_CHECK_SECONDS", 0.001)
    clock = Clock()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep_until, clock, clock.now() + 300)
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
            clock.advance(300)


MODELS = load_models()


@pytest.mark.parametrize(
    ("model", "ttl", "has_thinking", "refresh", "loss"),
    [
        ("opus", "5m", True, "0.02002", "0.48"),
        ("opus", "5m", False, "0.02", "0.48"),
        ("opus", "1h", True, "0.02002", "0.78"),
    ],
)
def test_refresh_and_loss_of_100k_tokens(model: str, ttl: Ttl, refresh: str, loss: str, *, has_thinking: bool) -> None:
    plan = keepalive_plan(MODELS.get(model), prefix_tokens=100_000, ttl=ttl, has_thinking=has_thinking)
    assert (plan.refresh, plan.loss) == (Decimal(refresh), Decimal(loss))
    assert plan.interval == {"5m": 280, "1h": 3580}[ttl]


@examples(20)
@given(
    model=st.sampled_from(sorted(MODELS.models)),
    tokens=st.integers(0, 200_000),
    wait=st.integers(1, 48 * 3600),
    ttl=st.sampled_from(["5m", "1h"]),
)
def test_refreshes_at_most_double_the_least_cost_of_any_wait(model: str, tokens: int, wait: int, ttl: Ttl) -> None:
    """Refresh while `is_worth_another` is True, then read or write; a prefix with a small loss is not refreshed."""
    chosen = MODELS.get(model)
    upkeep = keepalive_plan(chosen, prefix_tokens=tokens, ttl=ttl)
    spent, used = Decimal(0), 0.0
    while used + upkeep.interval < wait and upkeep.is_worth_another(spent):
        spent, used = spent + upkeep.refresh, used + upkeep.interval
    read = chosen.cost(Usage(read=tokens) if tokens >= chosen.cache_minimum else Usage(input=tokens))
    left_alone = read if wait <= upkeep.interval else read + upkeep.loss
    least = min(left_alone, refreshes_needed(ttl, wait) * upkeep.refresh + read)
    paid = spent + (read if wait - used <= upkeep.interval else read + upkeep.loss)
    assert least <= paid <= (2 * least if upkeep.loss >= LEAST_LOSS else least + LEAST_LOSS)
