"""Scripts over HTTP: selection and order of replies, and clients that disconnect."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tests.embedded_server import Served, open_served
from tests.scenarios.api_server.api.api_client import AUTH, ApiAnswer, ask, control, named, open_peer, request, until
from tests.scenarios.api_server.request_samples import tool

PAIR = """
writer:
  - {text: draft, signal: drafted}
  - {text: final, until: [drafted, reviewed]}
reviewer:
  - {text: "two typos", until: drafted, signal: reviewed}
"""


def text_of(answer: ApiAnswer) -> str:
    assert answer.status == 200, answer.body
    words: str = answer.json["content"][0]["text"]
    return words


def awaits(served: Served, *names: str) -> Callable[[], bool]:
    signals = served.server.control.signals
    return lambda: signals.awaited == sorted(names)


async def test_signals_order_the_turns_of_two_agents() -> None:
    """The last turn is asked for first; each answer comes when those it depends on are out."""
    order: list[str] = []

    async def turn(served: Served, agent: str, number: int) -> None:
        order.append(text_of(await ask(served, **named(agent, number))))

    async with open_served(PAIR) as served, trio.open_nursery() as nursery:
        nursery.start_soon(turn, served, "writer", 2)
        await until(awaits(served, "drafted", "reviewed"))
        nursery.start_soon(turn, served, "reviewer", 1)
        await until(lambda: len(served.server.control.signals._waiting) == 2)  # noqa: SLF001 - both must have arrived
        assert order == []
        nursery.start_soon(turn, served, "writer", 1)
        await until(lambda: len(order) == 3)
        nursery.cancel_scope.cancel()
    assert order == ["draft", "two typos", "final"]


async def test_the_control_side_raises_a_signal() -> None:
    async with open_served("default: [{text: go, until: approved}]") as served, trio.open_nursery() as nursery:
        answers: list[ApiAnswer] = []

        async def wait() -> None:
            answers.append(await ask(served))

        nursery.start_soon(wait)
        await until(awaits(served, "approved"))
        assert (await control(served, "signal", {"name": "other"})).json == {"raised": ["other"]}
        assert awaits(served, "approved")()
        assert (await control(served, "signal", {"name": "approved"})).json == {"raised": ["approved", "other"]}
        await until(lambda: bool(answers))
        assert (await control(served, "signal")).json == {"raised": ["approved", "other"]}
    assert text_of(answers[0]) == "go"


@pytest.mark.parametrize("fault", ["{kind: error_event, after: 2}", "cut", "overloaded", "disconnect"])
async def test_a_reply_that_fails_raises_no_signal(fault: str) -> None:
    async with open_served(f"default: [{{text: go, signal: gone, fault: {fault}}}]") as served:
        await ask(served, request(stream=True), **named("a"))
        assert (await control(served, "signal")).json == {"raised": []}
        await ask(served, request(stream=True), **named("a"))
        assert (await control(served, "signal")).json == {"raised": ["gone"]}


async def test_a_request_nothing_answers_is_shown_the_nearest_rule() -> None:
    script = """
default:
  - {text: a, when: {last_user_text: fix, tool: Write, turn: 9}}
  - {text: b, when: {last_user_text: "/tests? (pass|fail)/", tool: Read}}
"""
    async with open_served(script) as served:
        answer = await ask(served, request("all is well", tools=[tool("Read")]), **named("coder", 3))
        [entry] = served.requests
    assert (answer.status, entry["reply"]) == (400, None)
    asked, nearest = answer.error.split("\n")
    assert asked == "no scripted reply for agent 'coder', purpose 'turn', turn 3; last user text: 'all is well'"
    assert nearest.startswith("script test.yaml line 4: rule needs last_user_text matching /tests? (pass|fail)/")


async def test_a_delay_holds_the_reply_back() -> None:
    async with open_served("default: [{text: late, delay: 0.05}]") as served:
        began = time.perf_counter()
        assert text_of(await ask(served)) == "late"
        assert time.perf_counter() - began >= 0.05


async def test_a_pace_holds_each_event_back() -> None:
    async with open_served("default: [{text: slowly, token_delay: 0.01}]") as served:
        began = time.perf_counter()
        events = (await ask(served, request(stream=True))).events
        assert time.perf_counter() - began >= 0.01 * len(events)
    assert len(events) == 7


@pytest.mark.parametrize(
    ("script", "is_streamed"),
    [
        ("default: [{text: never, until: doomsday}]", False),
        ("default: [{text: never, until: doomsday}]", True),
        ("default: [{text: never, delay: 1000}]", False),
        ("default: [{text: never, token_delay: 1000}]", True),
        ("default: [{text: never, fault: stall}]", True),
        ("default: [{text: never, fault: stall}]", False),
    ],
)
async def test_a_client_that_leaves_frees_its_task(script: str, *, is_streamed: bool) -> None:
    async with open_served(script) as served:
        tasks = await leave_in_the_middle(served, request(stream=is_streamed))
        [entry] = served.requests
        assert (entry["error"], entry["reply"]) == ("client_gone", "default[1]")
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
        assert served.server.control.signals.awaited == []


async def leave_in_the_middle(served: Served, body: dict[str, Any]) -> int:
    """Ask, wait until the server has stopped, and go; returns how many tasks there were before."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with open_peer(served) as peer:
        await peer.send("POST", "/v1/messages", AUTH, msgspec.json.encode(body))
        await until(lambda: trio.lowlevel.current_statistics().tasks_living >= tasks + 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
    await until(lambda: any(entry["error"] for entry in served.requests))
    return tasks


async def test_a_reply_that_waits_has_told_before_that_it_was_asked_for() -> None:
    """So another can come while the first is being answered: neither before nor behind."""
    script = (
        "lead: [{text: first, asked: lead-asks, until: told}]\npeer: [{text: between, until: lead-asks, signal: told}]"
    )
    order: list[str] = []

    async def turn(served: Served, agent: str) -> None:
        order.append(text_of(await ask(served, **named(agent, 1))))

    async with open_served(script) as served, trio.open_nursery() as nursery:
        nursery.start_soon(turn, served, "peer")
        await until(awaits(served, "lead-asks"))
        nursery.start_soon(turn, served, "lead")
        await until(lambda: len(order) == 2)
    assert order == ["between", "first"]
