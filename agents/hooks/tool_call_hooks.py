"""Hooks around a tool call: they may deny it, change its input, or vote on its permission."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from coterie.agents.hooks.hook_output import HookDecision
from coterie.agents.hooks.lifecycle_hooks import HookMessages
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import Agent, call_without_hooks
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.types import Vote
from coterie.agents.prompts import render
from coterie.agents.tools.tool import ToolResult, call_tool


@attrs.frozen(kw_only=True)
class ToolCallHooks:
    """The `Caller` of an agent with hooks.

    What the model has sent stays in the conversation as it is; an input that a hook has changed is checked as any
    other, and permissions judge that one.
    """

    hooks: HookRegistry
    authority: Authorizer
    remarks: HookMessages

    async def __call__(self, agent: Agent, call: dict[str, Any]) -> ToolResult:
        """Answer *call*."""
        name, id_ = call["name"], call["id"]
        if name not in agent.tools:
            return await call_without_hooks(agent, call)
        if self.remarks.stop is not None:  # by a call before this one, in the same turn
            return _denied(self.remarks.stop)
        facts = {"tool_name": name, "tool_use_id": id_}
        before = await self.hooks.fire("PreToolUse", name, tool_input=call["input"], **facts)
        self.remarks.record(id_, "PreToolUse", before.contexts)
        if reason := self._refusal(before):
            return _denied(reason)
        given = call["input"] if before.updated_input is None else before.updated_input
        vote = None if before.vote is None else Vote(wants=before.vote, reason=before.vote_reason)
        denial = partial(self.authority.denial, vote=vote)
        result = await call_tool(agent.tools, name, given, agent.workspace, denial)
        if result.is_error:
            return result
        said = _response(name, given, result)
        after = await self.hooks.fire("PostToolUse", name, tool_input=given, tool_response=said, **facts)
        self.remarks.record(id_, "PostToolUse", (*after.objections, *after.contexts))
        self._refusal(after)
        return result

    def _refusal(self, advice: HookDecision) -> str | None:
        """Why a call is not made; None if it is. One that ends the run is kept in mind."""
        self.remarks.stop = self.remarks.stop or advice.stop
        reasons = (*advice.objections, *(() if advice.stop is None else (advice.stop,)))
        return "\n".join(reasons) or None


def _denied(reason: str) -> ToolResult:
    return ToolResult(text=render("hook_denied", reason=reason), is_error=True)


def _response(name: str, given: Mapping[str, Any], result: ToolResult) -> dict[str, Any]:
    """What hooks are told of *result*, also by the names that they know from elsewhere."""
    response: dict[str, Any] = {"text": result.text, "is_error": result.is_error}
    if name == "Bash":
        response |= {"stdout": result.text, "stderr": "", "interrupted": False}
    if isinstance(path := given.get("file_path"), str):
        response["filePath"] = path
    return response
