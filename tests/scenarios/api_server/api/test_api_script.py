"""Scripts over HTTP: order of replies, clients that disconnect, and ids that repeat with the turn."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tests.embedded_server import Served, open_sdk, open_served
from tests.scenarios.api_server.api.api_client import AUTH, ApiAnswer, ask, control, named, open_peer, request, until
from tests.scenarios.api_server.request_samples import tool

PAIR = """
writer:
  - {text: draft, signal: drafted}
  - {text: final, until: [drafted, reviewed]}
reviewer:
  - {text: "two typos", until: drafted, signal: reviewed}
lead: [{text: first, asked: asks, until: told}]
peer: [{text: between, until: asks, signal: told}]
"""


def text_of(answer: ApiAnswer) -> str:
    assert answer.status == 200, answer.body
    words: str = answer.json["content"][0]["text"]
    return words


def awaits(served: Served, *names: str) -> Callable[[], bool]:
    signals = served.server.control.signals
    return lambda: signals.awaited == sorted(names)


async def turn(served: Served, said: list[str], agent: str, number: int = 1) -> None:
    said.append(text_of(await ask(served, **named(agent, number))))


async def test_signals_order_the_turns_of_two_agents() -> None:
    """The last turn is asked for first; each answer comes when those it depends on are out."""
    said: list[str] = []
    async with open_served(PAIR) as served, trio.open_nursery() as nursery:
        nursery.start_soon(turn, served, said, "writer", 2)
        await until(awaits(served, "drafted", "reviewed"))
        nursery.start_soon(turn, served, said, "reviewer")
        await until(lambda: len(served.server.control.signals._waiting) == 2)  # noqa: SLF001 - both must have arrived
        assert said == []
        nursery.start_soon(turn, served, said, "writer")
    assert said == ["draft", "two typos", "final"]


async def test_a_reply_that_waits_has_told_before_that_it_was_asked_for() -> None:
    """So another can come while the first is being answered: neither before nor behind."""
    said: list[str] = []
    async with open_served(PAIR) as served, trio.open_nursery() as nursery:
        nursery.start_soon(turn, served, said, "peer")
        await until(awaits(served, "asks"))
        nursery.start_soon(turn, served, said, "lead")
    assert said == ["between", "first"]


async def test_the_control_side_raises_a_signal() -> None:
    said: list[str] = []
    async with open_served("default: [{text: go, until: approved}]") as served, trio.open_nursery() as nursery:
        nursery.start_soon(turn, served, said, "writer")
        await until(awaits(served, "approved"))
        assert (await control(served, "signal", {"name": "other"})).json == {"raised": ["other"]}
        assert awaits(served, "approved")()
        assert (await control(served, "signal", {"name": "approved"})).json == {"raised": ["approved", "other"]}
        await until(lambda: said == ["go"])
        assert (await control(served, "signal")).json == {"raised": ["approved", "other"]}


@pytest.mark.parametrize("fault", ["{kind: error_event, after: 2}", "cut", "overloaded", "disconnect"])
async def test_a_reply_that_fails_raises_no_signal(fault: str) -> None:
    async with open_served(f"default: [{{text: go, signal: gone, fault: {fault}}}]") as served:
        await ask(served, request(stream=True), **named("a"))
        assert (await control(served, "signal")).json == {"raised": []}
        await ask(served, request(stream=True), **named("a"))
        assert (await control(served, "signal")).json == {"raised": ["gone"]}


async def test_a_delay_holds_the_reply_back_and_a_pace_each_event() -> None:
    script = "default: [{text: late, delay: 0.05}, {text: slowly, token_delay: 0.01}]"
    async with open_served(script) as served:
        began = time.perf_counter()
        assert text_of(await ask(served)) == "late"
        assert time.perf_counter() - began >= 0.05
        began = time.perf_counter()
        assert len((await ask(served, request(stream=True))).events) == 7
        assert time.perf_counter() - began >= 0.07


@pytest.mark.parametrize(
    ("script", "is_streamed"),
    [
        *(("until: doomsday", is_streamed) for is_streamed in (False, True)),
        *(("fault: stall", is_streamed) for is_streamed in (False, True)),
        ("delay: 1000", False),
        ("token_delay: 1000", True),
    ],
)
async def test_a_client_that_leaves_frees_its_task(script: str, *, is_streamed: bool) -> None:
    async with open_served(f"default: [{{text: never, {script}}}]") as served:
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with open_peer(served) as peer:
            body = msgspec.json.encode(request(stream=is_streamed))
            await peer.send("POST", "/v1/messages", AUTH, body)
            await until(lambda: trio.lowlevel.current_statistics().tasks_living >= tasks + 2)
            await trio.testing.wait_all_tasks_blocked(0.01)
        await until(lambda: any(entry["error"] for entry in served.requests))
        [entry] = served.requests
        assert (entry["error"], entry["reply"]) == ("client_gone", "default[1]")
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
        assert served.server.control.signals.awaited == []


CALLS = "default: [{text: first, tools: [{Read: {path: a}}, {Read: {path: b}}], times: always}]"


async def ids(served: Served, text: str = "hello", **headers: str) -> list[str]:
    message = (await ask(served, request(text, tools=[tool()]), **headers)).json
    return [message["id"], *(block["id"] for block in message["content"] if block["type"] == "tool_use")]


async def ids_of_turns(seed: int) -> list[list[str]]:
    asked = itertools.product(("a", "b"), ("turn", "summary"), (1, 2))
    script = f"{CALLS[:-1]}, {{tools: [{{Read: {{}}}}], purpose: summary, times: always}}]"
    async with open_served(script, seed=seed) as served:
        return [await ids(served, **named(agent, turn, purpose)) for agent, purpose, turn in asked]


async def test_equal_seeds_give_equal_ids_and_another_seed_others() -> None:
    first, again, other = await ids_of_turns(7), await ids_of_turns(7), await ids_of_turns(8)
    assert first == again
    every = [*itertools.chain(*first), *itertools.chain(*other)]
    assert len(set(every)) == len(every)


async def test_ids_do_not_depend_on_other_requests() -> None:
    async with open_served(CALLS) as served:
        alone = await ids(served, **named("a", 2))
    async with open_served(CALLS) as served:
        await ids(served, **named("b", 1))
        await ids(served, **named("a", 1))
        assert await ids(served, "another text", **named("a", 2)) == alone
        assert await ids(served, **{**named("a", 2), "x-coterie-incarnation": "2"}) == alone


async def test_a_client_without_a_name_has_ids_by_its_request_and_its_place_in_order() -> None:
    async def asked() -> list[list[str]]:
        async with open_served(CALLS) as served:
            return [await ids(served), await ids(served, "more"), await ids(served)]

    first = await asked()
    assert len({id_ for each in first for id_ in each}) == sum(map(len, first))
    assert await asked() == first


async def test_a_turn_asked_again_is_answered_the_same_under_another_request_id() -> None:
    script = "default: [{text: one, tools: [{Read: {}}]}, {text: two}]"
    async with open_served(script) as served:
        answers = [await ask(served, **named("a", turn)) for turn in (1, 1, 2, 1)]
    one, retried, two, late = (answer.json for answer in answers)
    assert one == retried == late
    assert two["content"][0]["text"] == "two"
    assert len({answer.headers["request-id"] for answer in answers}) == 4


async def test_sdk_retries_get_the_same_reply() -> None:
    """A client without names is known to retry by the header its SDK counts in."""
    script = "default: [{text: one, fault: {kind: overloaded, retry_after: 0.01, count: 2}}, {text: two}]"
    async with open_served(script) as served, open_sdk(served) as client:
        patient = client.with_options(max_retries=2)
        params: dict[str, Any] = request()
        said = [(await patient.messages.create(**params)).to_dict()["content"] for _ in range(2)]
        assert [entry["status"] for entry in served.requests] == [529, 529, 200, 200]
    assert said == [[{"type": "text", "text": "one"}], [{"type": "text", "text": "two"}]]
