"""Progress summaries by a small model over real HTTP, while the agent runs."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.errors import BudgetSpent
from coterie.agents.events.agent_events import Event, ProgressSummarized
from coterie.agents.events.layer_events import CacheBroke
from coterie.agents.layers.progress.summarizer import ProgressSummarizer, TimeoutGateway, clean
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import load_models
from coterie.agents.loop.model.gateway_protocol import LocalGateway, Permit
from tests.agents.scripted_agent import NotingTool, ObservedAgent, open_agent, watch

HAIKU = load_models().get("haiku")
NEVER = 3_600.0
"""Seconds between two summaries, for tests that call `summarize_once` themselves."""
PATIENCE = 0.05


def call(text: str = "x") -> dict[str, Any]:
    """A turn in which the agent calls its tool."""
    return {"text": f"I note {text}.", "tools": [{"Note": {"text": text}}]}


def summary_reply(text: str, **more: Any) -> dict[str, Any]:
    """Return a scripted reply of the small model."""
    return {"purpose": "summary", "text": text, **more}


DONE = {"text": "done"}


@attrs.frozen(kw_only=True)
class SummarizedAgent(ObservedAgent):
    """An agent with its summarizer, its events and the server."""

    summarizer: ProgressSummarizer

    @property
    def sent(self) -> list[dict[str, Any]]:
        """Bodies of the requests to the small model."""
        bodies = [json.loads(request.body) for request in self.served.received]
        return [body for body in bodies if body["model"] == HAIKU.id]


@asynccontextmanager
async def open_summarized_agent(
    directory: Path,
    *script: dict[str, Any],
    summarize_in: Callable[[str], bool] = lambda _: True,
    result: str = "noted",
    gate: LocalGateway | None = None,
    own_gate: LocalGateway | None = None,
    every: float = NEVER,
    size: int | None = None,
    **options: Any,
) -> AsyncIterator[SummarizedAgent]:
    """Open an agent that follows *script*; it is summarized during each call for whose text *summarize_in* is True.

    Summaries pass the agent's *gate*, or *own_gate*.
    """
    watched: SummarizedAgent | None = None
    gate = gate or LocalGateway()

    async def act(text: str) -> str:
        assert watched is not None
        if summarize_in(text):
            await watched.summarizer.summarize_once()
        return f"{result} {text}"

    text = json.dumps({"default": list(script)})
    async with open_agent(text, directory, NotingTool(name="Note", act=act), gate=gate, **options) as (agent, served):
        client = agent.client.with_gateway(TimeoutGateway(gate=own_gate or gate, timeout=PATIENCE))
        summarizer = ProgressSummarizer(agent, client, HAIKU, every=every, size=size)
        agent.pipeline = attrs.evolve(agent.pipeline, reply=(*agent.pipeline.reply, summarizer))
        async with summarizer.open():
            watched = SummarizedAgent(agent=agent, summarizer=summarizer, events=watch(agent), served=served)
            yield watched


LONG = "a line of what the tool has found\n" * 60


@attrs.define(eq=False)
class _NotedGate(LocalGateway):
    """Gateway that signals an admission and counts the running calls."""

    admitted: trio.Event = attrs.field(factory=trio.Event)
    running: int = 0

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        async with LocalGateway.admit(self, intent) as permit:
            self.running += 1
            self.admitted.set()
            try:
                yield permit
            finally:
                self.running -= 1


def prompt_of(entry: dict[str, Any]) -> int:
    usage = entry["usage"]
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage[key] for key in keys)


async def test_busy_agent_gets_progress_summary(tmp_path: Path) -> None:
    script = (call("a"), call("b"), DONE, summary_reply("Reading loop.py"))
    async with open_summarized_agent(tmp_path, *script, summarize_in="b".__eq__) as watched:
        await watched.run()
        (event,), (request,) = watched.of_type(ProgressSummarized), watched.requests("summary")
        assert (event.text, event.turn) == ("Reading loop.py", 3)
        assert (request["model"], request["agent"], request["turn"]) == (HAIKU.id, "main", 1)
        assert Decimal(event.cost_usd) == Decimal(request["cost_usd"]) > 0
        assert not watched.failures


async def test_each_summary_reads_the_last_request_from_cache(tmp_path: Path) -> None:
    count = 8
    script = [*(call(str(n)) for n in range(count)), DONE, *(summary_reply(f"Noting {n}") for n in range(1, count))]
    async with open_summarized_agent(tmp_path, *script, result=LONG) as watched:
        await watched.run()
        assert [event.text for event in watched.of_type(ProgressSummarized)] == [f"Noting {n}" for n in range(1, count)]
        requests = watched.requests("summary")
        cached = [entry for entry in requests if prompt_of(entry) >= HAIKU.cache_minimum]
        assert len(cached) >= count - 2
        for before, after in pairwise(cached):
            assert after["usage"]["cache_read_input_tokens"] == prompt_of(before)
        assert not [event for event in watched.events if isinstance(event, CacheBroke)]


async def test_small_model_sees_its_answers_and_each_entry_once(tmp_path: Path) -> None:
    script = (call("a"), call("b"), call("c"), DONE, summary_reply("Noting b"), summary_reply("Noting c"))
    async with open_summarized_agent(tmp_path, *script) as watched:
        await watched.run()
    last = watched.sent[-1]["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    text = json.dumps(last)
    told = ["is told: the task", "Note(text=a)", "noted a", "Note(text=b)", "Noting b", "noted b", "Note(text=c)"]
    assert [text.count(words) for words in told] == [1] * len(told)
    assert sorted(told, key=text.index) == told


async def test_no_summary_for_new_or_idle_agent(tmp_path: Path) -> None:
    script = (call("early"), call("at work"), DONE, summary_reply("Noting it"), summary_reply("Never asked"))
    async with open_summarized_agent(tmp_path, *script) as watched:
        await watched.summarizer.summarize_once()
        assert not watched.requests("summary")
        await watched.run()
        assert len(watched.of_type(ProgressSummarized)) == 1
        # The agent has finished its work.
        await watched.summarizer.summarize_once()
        await watched.summarizer.summarize_once()
        assert len(watched.requests("summary")) == 1


async def test_periodic_summaries_begin_after_first_reply(tmp_path: Path) -> None:
    told = trio.Event()

    def tell(event: Event) -> None:
        if isinstance(event, ProgressSummarized):
            told.set()

    script = (call("a"), call("b"), {**DONE, "until": "told"}, summary_reply("Noting b"))
    async with open_summarized_agent(tmp_path, *script, summarize_in=lambda _: False, every=0.001) as watched:
        watched.agent.emit = tell
        await trio.testing.wait_all_tasks_blocked()
        assert not watched.requests("summary")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.run)
            await told.wait()
            watched.served.server.control.signals.raise_signal("told")


async def test_end_of_agent_cancels_running_summary(tmp_path: Path) -> None:
    gate = _NotedGate()
    script = (call("a"), call("b"), {**DONE, "until": "never"}, summary_reply("Never said", until="never"))
    with trio.fail_after(10):
        async with open_summarized_agent(
            tmp_path, *script, summarize_in=lambda _: False, own_gate=gate, every=0.001
        ) as watched:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watched.run)
                await gate.admitted.wait()
                nursery.cancel_scope.cancel()
            assert gate.running == 1
        assert gate.running == 0
        assert not watched.of_type(ProgressSummarized)


async def test_repeated_failure_is_one_event_and_summaries_continue(tmp_path: Path) -> None:
    """Entries of a failed summary are sent again. An empty answer is no event."""
    fault = {"kind": "error", "status": 400, "count": 2}
    replies = (
        summary_reply("Noting d", fault=fault),
        summary_reply(" \n"),
        summary_reply("Noting f"),
    )
    async with open_summarized_agent(tmp_path, *map(call, "abcdef"), DONE, *replies) as watched:
        await watched.run()
        assert ["Note(text=b)" in json.dumps(body) for body in watched.sent] == [True] * 5
        assert [event.text for event in watched.of_type(ProgressSummarized)] == ["Noting d", "Noting f"]
        assert watched.failures == ["400 invalid_request_error: injected fault: error"]


async def test_summaries_are_skipped_without_event_in_cool_down(tmp_path: Path) -> None:
    gate = LocalGateway()

    def summarize_in(text: str) -> bool:
        if text == "b":
            gate.cool_down(4 * PATIENCE)
        return True

    script = (call("a"), call("b"), call("c"), DONE, summary_reply("Noting c"))
    async with open_summarized_agent(tmp_path, *script, gate=gate, summarize_in=summarize_in) as watched:
        await watched.run()
        assert not watched.failures
        assert [(event.text, event.turn) for event in watched.of_type(ProgressSummarized)] == [("Noting c", 4)]


@pytest.mark.parametrize(
    ("answered", "shown"),
    [
        ("Reading loop.py", "Reading loop.py"),
        ('\n  "Fixing client.ask."\nBecause it was broken.', "Fixing client.ask"),
        ("Read\x1b[31ming\tloop.py\x07", "Read [31ming loop.py"),
        ("Fixing \u202eyp.pool", "Fixing yp.pool"),
        ("**Running tests**", "Running tests"),
        (" \n ", ""),
        ("Reading " + "x" * 100, "Reading " + "x" * 51 + "…"),
    ],
)
def test_answer_is_one_short_line_without_control_characters(answered: str, shown: str) -> None:
    assert clean(answered) == shown


async def test_timeout_gateway_admits_immediately_or_raises(autojump_clock: trio.testing.MockClock) -> None:
    local = LocalGateway(budget=Decimal(0))
    gate = TimeoutGateway(gate=local, timeout=5)
    intent = CallIntent(agent="a", purpose="summary", model=HAIKU, prompt_tokens=10, max_tokens=1, prefix=b"")
    with pytest.raises(BudgetSpent):
        async with gate.admit(intent):
            pytest.fail("there is no budget")
    local.budget = None
    async with gate.admit(intent):
        gate.cool_down(6)
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            async with gate.admit(intent):
                pytest.fail("the gate is closed")
        assert trio.current_time() - began == pytest.approx(5)
    async with gate.admit(intent):
        assert trio.current_time() - began == pytest.approx(6)
