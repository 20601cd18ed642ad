"""Tools of a long session: built-in ones, which run for real, and recorded ones, which are replayed."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs
import msgspec

from benchmarks.long_session import LongSession
from benchmarks.recorded_runs import Call
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace, tool_definition


@attrs.frozen(kw_only=True)
class Replayed(Tool):
    """A recorded tool. Its calls come in the order of the recording, so its results do, too."""

    name: str
    input_type: type[attrs.AttrsInstance]
    is_clearable: bool
    results: Iterator[str]
    """Results not replayed yet; used up by one run of the session."""
    description: str = "A tool of a recorded run."
    access: Access = "run"

    async def run(self, _arguments: Any, _workspace: Workspace) -> ToolResult:
        """Return the next recorded result."""
        return ToolResult(text=next(self.results))


def session_tools(session: LongSession) -> dict[str, Tool]:
    """Return all tools that one run of *session* calls, and the other built-in ones."""
    calls: dict[str, list[Call]] = {}
    for call in chain.from_iterable(reply.calls for reply in session.replies):
        if call.result is not None:
            calls.setdefault(call.name, []).append(call)
    replayed = [_replayed(name, calls[name], is_clearable=name not in session.service_tools) for name in sorted(calls)]
    return {tool.name: tool for tool in (*BUILT_IN, *replayed)}


def definitions(tools: dict[str, Tool]) -> list[bytes]:
    """Return the entries of a request's `tools`; of a recorded tool only the argument names are known."""
    return [_open_definition(tool) if isinstance(tool, Replayed) else tool_definition(tool) for tool in tools.values()]


def _replayed(name: str, calls: list[Call], *, is_clearable: bool) -> Replayed:
    fields = {field: attrs.field(type=Any, default=None) for call in calls for field in call.arguments}
    return Replayed(
        name=name,
        input_type=attrs.make_class("Recorded", fields, frozen=True, kw_only=True),
        is_clearable=is_clearable,
        results=iter([call.result or "" for call in calls]),
    )


def _open_definition(tool: Replayed) -> bytes:
    schema = {"type": "object", "properties": {field.name: {} for field in attrs.fields(tool.input_type)}}
    return msgspec.json.encode({"name": tool.name, "description": tool.description, "input_schema": schema})
