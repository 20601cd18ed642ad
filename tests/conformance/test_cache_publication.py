from typing import Any

import anthropic
import pytest
import trio

from tests.conformance.cases import MODEL, Api, Bill, marked, open_api, rule, text, text_block, user

SYSTEM = [marked(text(600))]


async def _ask_into(bills: dict[str, Bill], api: Api, words: str) -> None:
    bills[words] = await api.ask(system=SYSTEM, messages=[user(text_block(words))])


@rule("prompt caching / concurrency: an entry is not readable before the first response begins")
async def test_a_request_that_comes_before_the_first_response_writes_too(holding: Api) -> None:
    bills: dict[str, Bill] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, bills, holding, "hold")
        await holding.until_held()
        assert await holding.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)
        holding.go()
    assert bills["hold"] == Bill(write_5m=600, uncached=1)


PARALLEL = """
default:
  - {text: okay, until: go-1, when: {last_user_text: ask-1}}
  - {text: okay, until: go-2, when: {last_user_text: ask-2}}
  - {text: okay, until: go-3, when: {last_user_text: ask-3}}
"""


@rule("prompt caching / concurrency: parallel identical requests all pay for the write")
async def test_parallel_requests_all_write() -> None:
    bills: dict[str, Bill] = {}
    async with open_api(PARALLEL) as api, trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(_ask_into, bills, api, f"ask-{number}")
        await api.until_held("go-1", "go-2", "go-3")
        api.go("go-1", "go-2", "go-3")
    assert list(bills.values()) == [Bill(write_5m=600, uncached=2)] * 3


@rule("prompt caching / concurrency: requests sent after the first response has begun read")
async def test_requests_that_wait_for_the_first_one_read(api: Api) -> None:
    bills: dict[str, Bill] = {}
    await api.ask(system=SYSTEM)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(_ask_into, bills, api, f"next {number}")
    assert set(bills.values()) == {Bill(read=600, uncached=2)}


STALLING = """
default:
  - {text: okay, when: {last_user_text: stall}, fault: {kind: stall, after: 1}}
  - {text: okay, times: always}
"""


@rule("prompt caching / concurrency: the entry is readable while the first response still streams")
async def test_an_entry_is_readable_as_soon_as_the_stream_has_begun() -> None:
    """The first stream never gets past its first event."""
    async with open_api(STALLING) as api, trio.open_nursery() as nursery:
        await nursery.start(_read_opening, api)
        assert await api.ask(system=SYSTEM) == Bill(read=600, uncached=1)
        nursery.cancel_scope.cancel()


@rule("prompt caching / concurrency: a request whose client leaves before the response leaves no entry")
async def test_a_request_given_up_before_its_response_leaves_no_entry(holding: Api) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_ask_into, {}, holding, "hold")
        await holding.until_held()
        nursery.cancel_scope.cancel()
    assert await holding.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


@rule("errors / prompt caching: a request that fails leaves no entry")
async def test_a_request_that_fails_leaves_no_entry() -> None:
    script = "default: [{text: okay, fault: overloaded}, {text: okay, times: always}]"
    async with open_api(script) as api:
        with pytest.raises(anthropic.InternalServerError):
            await api.ask(system=SYSTEM)
        assert await api.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


@rule("errors / prompt caching: a request that is refused leaves no entry")
async def test_a_request_that_is_refused_leaves_no_entry(api: Api) -> None:
    await api.refusal(system=SYSTEM, tool_choice={"type": "any"})
    assert await api.ask(system=SYSTEM) == Bill(write_5m=600, uncached=1)


async def _read_opening(api: Api, *, task_status: trio.TaskStatus[None]) -> None:
    """Open a stream and hold it; started after its first event."""
    open_stream: Any = api.client.messages.stream
    request = {"model": MODEL, "max_tokens": 16, "system": SYSTEM, "messages": [user(text_block("stall"))]}
    async with open_stream(**request) as stream:
        async for event in stream:
            assert event.type == "message_start"
            task_status.started()
