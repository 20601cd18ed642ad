"""Helpers of the cache conformance suite: each case tests one documented rule with the real SDK and the server."""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anthropic
import attrs
import msgspec
import pytest
import trio
from anthropic.types import Message as SdkMessage

from coterie.clock import Clock
from tests.embedded_server import Served, open_sdk, open_served

Block = dict[str, Any]
Message = dict[str, Any]
Request = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., Any])

MODEL = "claude-opus-5"
"""Caches from 512 tokens, accepts every tool choice, and binds no thinking, so that most rules are easy to test."""
SCRIPT = "default: [{text: okay, times: always}]"
HOLDING = """
default:
  - {text: okay, until: go, when: {last_user_text: hold}}
  - {text: okay, times: always}
"""
"""Script in which a request that ends with the text `hold` is answered after the signal `go`."""

RULES: dict[str, str] = {}
"""Reference of each case, by the full name of its test."""


def rule(reference: str) -> Callable[[Test], Test]:
    """Mark a test as a case of the suite; *reference* names the page of the documentation and its rule."""

    def note(test: Test) -> Test:
        RULES[f"{test.__module__}.{test.__name__}"] = reference
        return test

    return note


def rules(table: Mapping[str, object]) -> Callable[[Test], Test]:
    """Mark a test as one case for each row of *table*: keys are references, values are its argument `row`."""

    def note(test: Test) -> Test:
        RULES.update({f"{test.__module__}.{test.__name__}[{reference}]": reference for reference in table})
        marked_test: Test = pytest.mark.parametrize("row", table.values(), ids=list(table))(test)
        return marked_test

    return note


class StillClock(Clock):
    """Clock that moves only on request, so that exact limits can be tested."""

    def now(self) -> float:
        """Return a fixed time plus the offset."""
        return 1_800_000_000.0 + self.offset


@attrs.frozen(kw_only=True)
class Bill:
    """Input side of a usage object, by price."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    uncached: int = 0

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> "Bill":
        """Build the bill of *usage*; fails if its total of writes is not their sum."""
        created = usage["cache_creation"]
        bill = cls(
            read=usage["cache_read_input_tokens"],
            write_5m=created["ephemeral_5m_input_tokens"],
            write_1h=created["ephemeral_1h_input_tokens"],
            uncached=usage["input_tokens"],
        )
        assert usage["cache_creation_input_tokens"] == bill.written
        return bill

    @property
    def written(self) -> int:
        """Tokens written, for any lifetime."""
        return self.write_5m + self.write_1h

    @property
    def cached(self) -> int:
        """Tokens up to the last breakpoint: what the same request would read immediately afterwards."""
        return self.read + self.written

    @property
    def total(self) -> int:
        """All tokens of the prompt."""
        return self.cached + self.uncached


Step = Request | Bill | int | float | tuple[Request, Bill | int]
History = Sequence[Step]
"""Requests in their order; each may be followed by its bill or by the tokens that it reads. A float is a wait."""


def history(*steps: Step) -> tuple[Step, ...]:
    """Return the history of these steps; a request and what follows it may be a pair."""
    return steps


Refusal = tuple[Request, str]
"""A request and the message with which it is rejected; ` ...` ends a message of which only the beginning matters."""


def refusal(request: Request, message: str) -> Refusal:
    return request, message


@attrs.frozen(kw_only=True)
class Api:
    """The embedded server behind the real SDK, which requests whole replies or streams."""

    served: Served
    client: anthropic.AsyncAnthropic
    is_streamed: bool = False
    """Streams use the beta namespace of the SDK, whole replies the plain one."""

    async def send(self, **changes: Any) -> dict[str, Any]:
        """Return the reply to the basic request with *changes*; `betas` in it is a header."""
        body = {"model": MODEL, "max_tokens": 16, "messages": [user(text(1))], **changes}
        if not self.is_streamed:
            whole = await _call(self.client.messages.create, body)
            return whole.to_dict()  # type: ignore[no-any-return]  # the SDK's call is untyped here
        async with _call(self.client.beta.messages.stream, body) as stream:
            return (await stream.get_final_message()).to_dict()  # type: ignore[no-any-return]  # likewise

    async def ask(self, **changes: Any) -> Bill:
        """Return the bill of the basic request with *changes*."""
        return Bill.of((await self.send(**changes))["usage"])

    async def play(self, history: History) -> None:
        """Send the requests of *history* in their order, and check their bills."""
        bill = Bill()
        for step in (part for entry in history for part in (entry if isinstance(entry, tuple) else (entry,))):
            if isinstance(step, float):
                self.advance(step)
            elif isinstance(step, dict):
                bill = await self.ask(**step)
            else:
                billed = bill.read if isinstance(step, int) else bill
                assert billed == step, f"billed {billed} instead of {step}"

    async def check_refusal(self, refusal: Refusal) -> None:
        """Check that a request is rejected with its message."""
        request, expected = refusal
        message = await self.refusal(**request)
        start = expected.removesuffix(" ...")
        assert message == expected or (start != expected and message.startswith(start)), message

    async def refusal(self, **changes: Any) -> str:
        """Return the message with which such a request is rejected as invalid."""
        with pytest.raises(anthropic.BadRequestError) as caught:
            await self.send(**changes)
        body: Any = caught.value.body
        assert body["error"]["type"] == "invalid_request_error"
        return str(body["error"]["message"])

    async def count(self, **changes: Any) -> dict[str, Any]:
        """Return the result of `count_tokens` for such a request."""
        body = {"model": MODEL, "messages": [user(text(1))], **changes}
        counted = await _call(self.client.beta.messages.count_tokens, body)
        return counted.to_dict()  # type: ignore[no-any-return]  # the SDK's call is untyped here

    def advance(self, seconds: float) -> None:
        """Let cache entries age."""
        self.served.clock.advance(seconds)

    def go(self, *signals: str) -> None:
        """Release the held replies."""
        for name in signals or ("go",):
            self.served.server.control.signals.raise_signal(name)

    async def until_held(self, *signals: str) -> None:
        """Return when exactly these signals hold back replies."""
        with trio.fail_after(5):
            while self.served.server.control.signals.awaited != list(signals or ("go",)):
                await trio.lowlevel.checkpoint()


def _call(method: Any, body: dict[str, Any]) -> Any:
    """Call the SDK; unknown parameters are added to the body."""
    betas = body.pop("betas", ())
    headers = {"anthropic-beta": ",".join(betas)} if betas else {}
    known = inspect.signature(method).parameters
    named = {name: value for name, value in body.items() if name in known}
    extra = {name: value for name, value in body.items() if name not in known}
    return method(**named, extra_body=extra, extra_headers=headers)


@asynccontextmanager
async def open_api(script: str = SCRIPT, *, is_streamed: bool = False, **options: Any) -> AsyncIterator[Api]:
    """Serve *script* on a clock that does not move."""
    async with open_served(script, **options) as served, open_sdk(served) as client:
        served.server.clock = StillClock()
        yield Api(served=served, client=client, is_streamed=is_streamed)


def text(tokens: int, letter: str = "x") -> Block:
    """Return a text block of exactly *tokens*, which the server counts as four bytes each."""
    return {"type": "text", "text": letter * (4 * tokens)}


def text_block(words: str) -> Block:
    return {"type": "text", "text": words}


def tool(tokens: int, name: str = "lookup", **fields: Any) -> Block:
    """Return a tool definition of exactly *tokens*, which the server counts as three bytes of JSON each."""
    bare = {"name": name, "description": "", "input_schema": {"type": "object"}, **fields}
    padding = 3 * tokens - len(msgspec.json.encode(bare))
    assert padding >= 0, f"{name} needs more than {tokens} tokens"
    return {**bare, "description": "d" * padding}


def tool_use(name: str, tool_name: str = "lookup", **arguments: Any) -> Block:
    """Return a tool call with the id *name*."""
    return {"type": "tool_use", "id": name, "name": tool_name, "input": arguments}


def tool_result(name: str, content: Any = "done") -> Block:
    """Return the result of the tool call with the id *name*."""
    return {"type": "tool_result", "tool_use_id": name, "content": content}


def image(data: str = "aGk=") -> Block:
    """Return an image, which the server counts as 1,600 tokens."""
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def marked(block: Block, ttl: str | None = None) -> Block:
    return {**block, "cache_control": control(ttl)}


def control(ttl: str | None = None) -> dict[str, str]:
    """Return a `cache_control` object."""
    return {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}


def user(*blocks: Block) -> Message:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Block) -> Message:
    return {"role": "assistant", "content": list(blocks)}


def said(*blocks: Block, **more: Any) -> Request:
    """Return a request with one user message."""
    return {"messages": [user(*blocks)], **more}


def replied(message: Mapping[str, Any]) -> Message:
    """Return a reply as the client sends it back."""
    content = [{name: value for name, value in block.items() if value is not None} for block in message["content"]]
    return assistant(*content)


TOOLS, SYSTEM, MESSAGES = 600, 670, 678
"""Tokens of `layered` up to the end of each section; each ends with a breakpoint."""


def layered(**changes: Any) -> dict[str, Any]:
    """Return a request with all three sections, each cached, with *changes*."""
    return {
        "tools": [tool(300, "alpha"), marked(tool(300, "beta"))],
        "system": [marked(text(70, "s"))],
        "messages": [user(marked(text(8, "m")))],
        **changes,
    }


async def send_raw(sdk: anthropic.AsyncAnthropic, body: bytes, agent: str = "main") -> Bill:
    """Send the serialized *body*, which requests a whole reply, and return the bill of its input."""
    headers = {"content-type": "application/json", "x-coterie-agent": agent}
    message = await sdk.post("/v1/messages", cast_to=SdkMessage, content=body, options={"headers": headers})
    return Bill.of(message.usage.to_dict())
