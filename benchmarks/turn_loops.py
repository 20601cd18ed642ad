"""Turn loops that are compared: Coterie's and the SDK's, and the mere writing of the same number of bytes.

All loops start with the same history and get the same replies: some text and one call, whose result is appended.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import attrs
import msgspec

from benchmarks.client_cpu import request_of
from benchmarks.raw_http import messages_request, open_connection
from benchmarks.sample_history import MAX_TOKENS, MODEL, build_conversation
from coterie.agents.events.event_log import EventLog
from coterie.agents.layers.layer2_clearing import api_clearing
from coterie.agents.loop.agent import Agent, Durability
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.token_estimate import Thresholds
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.loop.pipeline import arrange, context_steps, disabled_settings
from coterie.agents.loop.run_result import RunLimits
from coterie.agents.settings import Settings
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace, allow_all
from coterie.clock import Clock
from coterie.memory.layer_settings import ClearingSettings, LayersSettings

CALL = {"read": {"path": "src/part_7.py", "lines": [1, 40]}}
"""The call in every reply, in the format of a script."""
RESULT = "\n".join(f'{number:>5}\t    value = "a turn adds as much as those of the history"' for number in range(1, 10))

TakeTurns = Callable[[int], Awaitable[None]]
"""Runs this number of turns in sequence, and returns when the last reply's call is answered."""
OpenLoop = Callable[[str, int], AbstractAsyncContextManager[TakeTurns]]
"""Function that connects to the server at a URL, with a history of this number of bytes."""


@asynccontextmanager
async def open_ours(url: str, size: int, *, durability: Durability) -> AsyncIterator[TakeTurns]:
    """Agent loop with all layers, with transcript and events on disk."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with open_model_client(LocalGateway(), base_url=url, api_key="benchmark") as client:
            with (
                TranscriptWriter.open(directory / "transcript.jsonl", clock) as transcript,
                EventLog.open(directory / "events.jsonl", "main", clock) as events,
            ):
                agent = _agent(client, transcript, directory, build_conversation(size))
                agent.clock, agent.emit, agent.durability = clock, events.emit, durability
                transcript.record(agent.conversation)
                yield partial(_run_our_turns, agent)


def _agent(client: ModelClient, transcript: TranscriptWriter, directory: Path, conversation: Conversation) -> Agent:
    settings, tools, model = (
        LayersSettings(clearing=ClearingSettings(by_cache=False)),
        {"read": _Read()},
        known_models().get(MODEL),
    )
    thresholds = Thresholds.for_window(model.window, model.max_output)
    header = api_clearing(KeyHeader(model=MODEL), model, thresholds, settings.clearing, tools)
    changed = attrs.evolve(conversation.header, betas=header.betas, context_management=header.context_management)
    conversation.rewrite(conversation.messages, changed)
    return Agent(
        identity=Identity(agent="main"),
        model=model,
        client=client,
        conversation=conversation,
        transcript=transcript,
        tools=tools,
        workspace=Workspace(root=directory, scratch=directory),
        denial=allow_all,
        meter=WindowMeter(thresholds),
        build_pipeline=lambda _agent: arrange(
            context_steps(settings, dict(tools), directory), disabled_settings(Settings(layers=settings))
        ),
    )


async def _run_our_turns(agent: Agent, turns: int) -> None:
    ended = await run_loop(agent, RunLimits(turns=turns))
    if ended.reason != "max_turns":
        raise ValueError(f"the loop ended early: {ended}")


@attrs.frozen(kw_only=True)
class _Reading:
    path: str
    lines: list[int]


@attrs.frozen(kw_only=True)
class _Read(Tool):
    """A tool that does nothing, because only the loop is measured."""

    name: str = "read"
    description: str = ""
    input_type: type[attrs.AttrsInstance] = _Reading
    access: Access = "read"
    is_clearable: bool = True

    async def run(self, _arguments: _Reading, _workspace: Workspace) -> ToolResult:
        return ToolResult(text=RESULT)


@asynccontextmanager
async def open_sdk_loop(url: str, size: int) -> AsyncIterator[TakeTurns]:
    """Minimal loop with the SDK: dictionaries, assembled events, markers moved by hand.

    `messages.stream`, which puts the message together itself, costs more.
    """
    transport = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(api_key="benchmark", base_url=url, max_retries=0, http_client=transport) as sdk:
        params: dict[str, Any] = msgspec.json.decode(build_conversation(size).render(max_tokens=MAX_TOKENS).body)
        yield _SdkLoop(sdk, params).run_turns


@attrs.define(eq=False)
class _SdkLoop:
    sdk: anthropic.AsyncAnthropic
    params: dict[str, Any]
    """Return the next request."""
    _marked: dict[str, Any] | None = None
    """The block with the last marker of the previous request."""

    async def run_turns(self, turns: int) -> None:
        messages = self.params["messages"]
        for _ in range(turns):
            content = await self._ask()
            messages.append({"role": "assistant", "content": content})
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            messages.append({"role": "user", "content": list(map(_result, calls))})
            self._move_marker()

    async def _ask(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        pieces: list[list[str]] = []
        async for event in await self.sdk.messages.create(**self.params):
            if event.type == "content_block_start":
                blocks.append(event.content_block.to_dict())
                pieces.append([])
            elif event.type == "content_block_delta":
                delta = event.delta
                pieces[event.index].append(delta.text if delta.type == "text_delta" else delta.partial_json)
        for block, parts in zip(blocks, pieces, strict=True):
            if block["type"] == "text":
                block["text"] = "".join(parts)
            else:
                block["input"] = msgspec.json.decode("".join(parts))
        return blocks

    def _move_marker(self) -> None:
        """Mark the new end and keep the last mark of the previous request, as Coterie does."""
        if self._marked is not None:
            del self._marked["cache_control"]
        *_, sent, _reply, new = self.params["messages"]
        self._marked = sent["content"][-1]
        new["content"][-1]["cache_control"] = {"type": "ephemeral"}


def _result(call: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": RESULT}]}


@asynccontextmanager
async def open_ready(url: str, size: int) -> AsyncIterator[TakeTurns]:
    """Not a loop: sends the same ready bytes again and again, through the transport that Coterie uses."""
    request = request_of(build_conversation(size).render(max_tokens=MAX_TOKENS).body)
    async with open_model_client(LocalGateway(), base_url=url, api_key="benchmark") as client:
        yield partial(_ask_again, client, request)


async def _ask_again(client: ModelClient, request: ModelRequest, turns: int) -> None:
    for _ in range(turns):
        await client.ask(request)


@asynccontextmanager
async def open_bare_write(url: str, size: int) -> AsyncIterator[TakeTurns]:
    """Sends the same bytes directly to a socket."""
    request = messages_request(build_conversation(size).render(max_tokens=MAX_TOKENS).body)
    async with open_connection(urlsplit(url).port or 0) as wire:

        async def write(turns: int) -> None:
            for _ in range(turns):
                await wire.exchange(request)

        yield write


OURS = "our loop"
UNSYNCED = "our loop, never synced"
SDK = "bare SDK loop"
READY = "SDK's write of ready bytes"
BARE = "bare write"
LOOPS: Mapping[str, OpenLoop] = {
    OURS: partial(open_ours, durability="turn"),
    UNSYNCED: partial(open_ours, durability="never"),
    SDK: open_sdk_loop,
    READY: open_ready,
    BARE: open_bare_write,
}
