"""Ids over HTTP: the same turn has the same reply and ids, regardless of other requests and repetitions."""

import itertools
from typing import Any

from tests.embedded_server import Served, open_sdk, open_served
from tests.scenarios.api_server.api.api_client import ask, named, request
from tests.scenarios.api_server.request_samples import tool

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
        logged = [entry["request_id"] for entry in served.requests]
    one, retried, two, late = (answer.json for answer in answers)
    assert one == retried == late
    assert two["content"][0]["text"] == "two"
    assert [answer.headers["request-id"] for answer in answers] == logged
    assert len(set(logged)) == 4


async def test_sdk_retries_get_the_same_reply() -> None:
    """A client without names is known to retry by the header its SDK counts in."""
    script = "default: [{text: one, fault: {kind: overloaded, retry_after: 0.01, count: 2}}, {text: two}]"
    async with open_served(script) as served, open_sdk(served) as client:
        patient = client.with_options(max_retries=2)
        params: dict[str, Any] = request()
        said = [(await patient.messages.create(**params)).to_dict()["content"] for _ in range(2)]
        assert [entry["status"] for entry in served.requests] == [529, 529, 200, 200]
    assert said == [[{"type": "text", "text": "one"}], [{"type": "text", "text": "two"}]]
