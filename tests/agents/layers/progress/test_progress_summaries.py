"""Progress summaries by a small model over real HTTP, while the agent runs."""

from collections.abc import AsyncIterator
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
from coterie.agents.layers.progress.summarizer import TimeoutGateway, clean
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import LocalGateway, Permit
from tests.agents.layers.progress.summarized_agent import (
    DONE,
    HAIKU,
    PATIENCE,
    call,
    open_summarized_agent,
    summary_reply,
)

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
        assert (await watched.work()).reason == "completed"
        (event,), (request,) = watched.progress, watched.requests
        assert (event.text, event.turn) == ("Reading loop.py", 3)
        assert (request["model"], request["agent"], request["turn"]) == (HAIKU.id, "main", 1)
        assert Decimal(event.cost_usd) == Decimal(request["cost_usd"]) > 0
        assert not watched.failures


async def test_each_summary_reads_the_last_request_from_cache(tmp_path: Path) -> None:
    count = 8
    script = [*(call(str(n)) for n in range(count)), DONE, *(summary_reply(f"Noting {n}") for n in range(1, count))]
    async with open_summarized_agent(tmp_path, *script, result=LONG) as watched:
        await watched.work()
        assert [event.text for event in watched.progress] == [f"Noting {n}" for n in range(1, count)]
        requests = watched.requests
        cached = [entry for entry in requests if prompt_of(entry) >= HAIKU.cache_minimum]
        assert len(cached) >= count - 2
        for before, after in pairwise(cached):
            assert after["usage"]["cache_read_input_tokens"] == prompt_of(before)
        assert not [event for event in watched.events if isinstance(event, CacheBroke)]


async def test_small_model_sees_its_answers_and_each_entry_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Conversation] = []
    render = Conversation.render

    def noting(conversation: Conversation, **options: Any) -> Any:
        sent.append(conversation)
        return render(conversation, **options)

    script = (call("a"), call("b"), call("c"), DONE, summary_reply("Noting b"), summary_reply("Noting c"))
    async with open_summarized_agent(tmp_path, *script) as watched:
        monkeypatch.setattr(Conversation, "render", noting)
        await watched.work()
    last = [conversation for conversation in sent if conversation.header.model == HAIKU.id][-1]
    assert [role for role, _ in last.messages] == ["user", "assistant", "user", "assistant"]
    text = b"".join(block for _, blocks in last.messages for block in blocks).decode()
    told = ["is told: the task", "Note(text=a)", "noted a", "Note(text=b)", '"Noting b"', "noted b", "Note(text=c)"]
    assert [text.count(words) for words in told] == [1] * len(told)
    assert sorted(told, key=text.index) == told


async def test_no_summary_for_new_or_idle_agent(tmp_path: Path) -> None:
    script = (call("early"), call("at work"), DONE, summary_reply("Noting it"), summary_reply("Never asked"))
    async with open_summarized_agent(tmp_path, *script) as watched:
        await watched.summarizer.summarize_once()
        assert not watched.requests
        await watched.work()
        assert len(watched.progress) == 1
        # The agent has finished its work.
        await watched.summarizer.summarize_once()
        await watched.summarizer.summarize_once()
        assert len(watched.requests) == 1


async def test_periodic_summaries_begin_after_first_reply(tmp_path: Path) -> None:
    told = trio.Event()

    def tell(event: Event) -> None:
        if isinstance(event, ProgressSummarized):
            told.set()

    script = (call("a"), call("b"), {**DONE, "until": "told"}, summary_reply("Noting b"))
    async with open_summarized_agent(tmp_path, *script, summarize_in=lambda _: False, every=0.001) as watched:
        watched.agent.emit = tell
        await trio.testing.wait_all_tasks_blocked()
        assert not watched.requests
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.work)
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
                nursery.start_soon(watched.work)
                await gate.admitted.wait()
                nursery.cancel_scope.cancel()
            assert gate.running == 1
        assert gate.running == 0
        assert not watched.progress


async def test_repeated_failure_is_one_event_and_summaries_continue(tmp_path: Path) -> None:
    fault = {"kind": "error", "status": 400, "count": 2}
    script = (*(call(text) for text in "abcd"), DONE, summary_reply("Noting d", fault=fault))
    async with open_summarized_agent(tmp_path, *script) as watched:
        assert (await watched.work()).reason == "completed"
        assert len(watched.requests) == 3
        assert [event.text for event in watched.progress] == ["Noting d"]
        assert watched.failures == ["400 invalid_request_error: injected fault: error"]


async def test_entries_of_failed_summary_are_sent_again(tmp_path: Path) -> None:
    fault = {"kind": "error", "status": 400, "count": 1}
    both = summary_reply("Noting b and c", when={"last_user_text": "Note(text=b)"}, fault=fault)
    async with open_summarized_agent(tmp_path, call("a"), call("b"), call("c"), DONE, both) as watched:
        await watched.work()
        assert len(watched.requests) == 2
        assert [event.text for event in watched.progress] == ["Noting b and c"]


async def test_empty_answer_is_no_event(tmp_path: Path) -> None:
    script = (call("a"), call("b"), call("c"), DONE, summary_reply(" \n"), summary_reply("Noting c"))
    async with open_summarized_agent(tmp_path, *script) as watched:
        await watched.work()
        assert len(watched.requests) == 2
        assert [event.text for event in watched.progress] == ["Noting c"]
        assert not watched.failures


async def test_spent_budget_is_one_event(tmp_path: Path) -> None:
    script = (*(call(text) for text in "abcd"), DONE)
    async with open_summarized_agent(tmp_path, *script, own_gate=LocalGateway(budget=Decimal(0))) as watched:
        assert (await watched.work()).reason == "completed"
        assert not watched.requests
        (reason,) = watched.failures
        assert "raise the budget" in reason


async def test_summaries_are_skipped_without_event_in_cool_down(tmp_path: Path) -> None:
    gate = LocalGateway()

    def summarize_in(text: str) -> bool:
        if text == "b":
            gate.cool_down(4 * PATIENCE)
        return True

    script = (call("a"), call("b"), call("c"), DONE, summary_reply("Noting c"))
    async with open_summarized_agent(tmp_path, *script, gate=gate, summarize_in=summarize_in) as watched:
        await watched.work()
        assert not watched.failures
        assert [(event.text, event.turn) for event in watched.progress] == [("Noting c", 4)]


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
