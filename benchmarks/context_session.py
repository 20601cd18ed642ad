"""A session of thousands of model calls: an agent that works for days on a few user texts."""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import msgspec

from benchmarks.long_session import LongSession, draw_pauses
from benchmarks.package_calls import LINES, PackageCalls
from benchmarks.recorded_runs import CODING, SERVICE, Call, Exchange, RecordedReply, read_runs
from benchmarks.replayed_tools import session_tools
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace, call_tool

AT_ONCE = (1, 1, 2, 2)
"""Number of calls of one exploration."""
PLACES = 400
"""Number of different calls to which an agent returns; each is made several times."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a session and of its window."""

    calls: int
    """Minimum number of model calls; the last exchange is completed."""
    window: int
    looks: tuple[int, ...]
    """Number of explorations before a recorded call: one of these."""
    weights: tuple[int, int, int, int] = (20, 3, 1, 1)
    """Weights of the kinds of calls in an exploration, see `PackageCalls`."""
    lines: tuple[int | None, ...] = LINES
    """Number of lines that a call of Read requests: one of these."""


def build_days(size: Size, seed: int) -> LongSession:
    """Build a session of this *size*; deterministic for a seed. Used-up runs repeat in another order."""
    source = random.Random(seed)
    coding, service = read_runs(CODING), read_runs(SERVICE)
    packages = PackageCalls(source, weights=size.weights, lines=size.lines)
    places = [packages.draw() for _ in range(PLACES)]
    exchanges, pauses = list[Exchange](), list[float]()
    for exchange in _endless(source, coding, service):
        if len(pauses) >= size.calls:
            break
        exchanges.append(_with_package_calls(source, exchange, places, size.looks))
        pauses += draw_pauses(source, len(exchanges[-1].replies))
    names = frozenset(call.name for run in service for exchange in run for call in _calls(exchange))
    return LongSession(exchanges=tuple(exchanges), pauses=tuple(pauses), service_tools=names)


async def remembering_tools(session: LongSession, workspace: Workspace) -> dict[str, Tool]:
    """Return all tools of *session*. Slow read-only tools have executed each of their calls before."""
    tools = session_tools(session)
    slow = {name: RememberingTool(tools[name]) for name in ("Bash", "Glob", "Grep")}
    for call in chain.from_iterable(map(_calls, session.exchanges)):
        if call.result is None and call.name in slow:
            await call_tool(slow, call.name, call.arguments, workspace)
    return tools | slow


@attrs.define(eq=False)
class RememberingTool(Tool):
    """Built-in tool that repeats its first result of a call, so that only the agent's own time is measured."""

    _tool: Tool
    _results: dict[Any, ToolResult] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """Forwarded to the tool, like the attributes below."""
        return self._tool.name

    @property
    def description(self) -> str:
        """Description for the model."""
        return self._tool.description

    @property
    def input_type(self) -> type[attrs.AttrsInstance]:
        """Class of its arguments."""
        return self._tool.input_type

    @property
    def access(self) -> Access:
        """Effects of a call."""
        return self._tool.access

    @property
    def is_clearable(self) -> bool:
        """True if an old result may be cleared."""
        return self._tool.is_clearable

    @property
    def result_cap(self) -> int | None:
        """Number of characters above which a result is stored."""
        return self._tool.result_cap

    def paths_affected(self, arguments: Any, workspace: Workspace) -> Iterable[Path]:
        """Return the paths that a call names."""
        return self._tool.paths_affected(arguments, workspace)

    async def run(self, arguments: Any, workspace: Workspace) -> ToolResult:
        """Return the recorded result; execute the call the first time."""
        if arguments not in self._results:
            self._results[arguments] = await self._tool.run(arguments, workspace)
        return self._results[arguments]


def _endless(source: random.Random, coding: list[list[Exchange]], service: list[list[Exchange]]) -> Iterator[Exchange]:
    while True:
        source.shuffle(coding)
        source.shuffle(service)
        yield from chain.from_iterable(chain.from_iterable(zip(coding, service, strict=False)))


def _with_package_calls(
    source: random.Random, exchange: Exchange, places: Sequence[Call], looks: Sequence[int]
) -> Exchange:
    replies: list[RecordedReply] = []
    for reply in exchange.replies:
        for _ in range(source.choice(looks) if reply.calls else 0):
            calls = tuple(source.sample(places, source.choice(AT_ONCE)))
            replies.append(RecordedReply(text="I look at how others have done this.", calls=calls))
        replies.append(reply)
    return attrs.evolve(exchange, replies=tuple(replies))


def _calls(exchange: Exchange) -> Iterator[Call]:
    return chain.from_iterable(reply.calls for reply in exchange.replies)
