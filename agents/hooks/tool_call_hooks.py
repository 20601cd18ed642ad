"""Hooks around a tool call: they may deny it, change its input, or vote on its permission."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from coterie.agents.hooks.lifecycle_hooks import HookMessages
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import Agent, call_without_hooks
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.types import Vote
from coterie.agents.prompts import render
from coterie.agents.tools.tool import ToolResult, call_tool


@attrs.frozen(kw_only=True)
class ToolCallHooks:
    """`Caller` of an agent with hooks.

    The conversation keeps the input as the model sent it. An input that a hook has changed is validated like any other,
    and permissions are checked against the changed input.
    """

    hooks: HookRegistry
    authority: Authorizer
    messages: HookMessages

    async def __call__(self, agent: Agent, call: dict[str, Any]) -> ToolResult:
        """Run *call* with its hooks and return the result."""
        name, id_ = call["name"], call["id"]
        if name not in agent.tools:
            return await call_without_hooks(agent, call)
        if self.messages.stop is not None:  # Requested by an earlier call of the same turn.
            return _denied(self.messages.stop)
        facts = {"tool_name": name, "tool_use_id": id_}
        before = await self.hooks.fire("PreToolUse", name, tool_input=call["input"], **facts)
        self.messages.record(id_, "PreToolUse", before.contexts)
        self.messages.stop = self.messages.stop or before.stop
        if before.refusal is not None:
            return _denied(before.refusal)
        given = call["input"] if before.updated_input is None else before.updated_input
        vote = None if before.vote is None else Vote(wants=before.vote, reason=before.vote_reason)
        denial = partial(self.authority.denial, vote=vote)
        result = await call_tool(agent.tools, name, given, agent.workspace, denial)
        if result.is_error:
            return result
        response = _response(name, given, result)
        after = await self.hooks.fire("PostToolUse", name, tool_input=given, tool_response=response, **facts)
        self.messages.record(id_, "PostToolUse", (*after.objections, *after.contexts))
        self.messages.stop = self.messages.stop or after.stop
        return result


def _denied(reason: str) -> ToolResult:
    return ToolResult(text=render("hook_denied", reason=reason), is_error=True)


def _response(name: str, given: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """Return *result* as input for hooks, with the additional member names of another product."""
    response: dict[str, Any] = {"text": result.text, "is_error": result.is_error}
    if name == "Bash":
        response |= {"stdout": result.text, "stderr": "", "interrupted": False}
    if isinstance(path := given.get("file_path"), str):
        response["filePath"] = path
    return response
