"""Helpers: short forks in the agent's process that serve a layer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import ModelRequest
from coterie.agents.prompts import render
from coterie.agents.tools.tool import Denial, Tool, ToolResult, Workspace, WorkspaceChange, call_tool
from coterie.agents.tools.workspace.memory_files import WritableMemory

MAX_TOKENS = 8_000
UNREADABLE = ToolResult(text="The input of this call is not valid JSON. Make the call again.", is_error=True)


Until = Callable[[Reply, Sequence[ToolAnswer]], bool]
"""Called with each reply of a helper, and the answers to those of its calls that were run; true if that is enough."""


@attrs.frozen(kw_only=True)
class HelperStart:
    """Where a helper begins: its agent's conversation at one moment. The agent may go on meanwhile."""

    conversation: Conversation
    tokens: int
    cached: int | None
    """Tokens of it that the cache has."""
    known: Mapping[Path, bytes] = attrs.field(factory=dict)
    """Files that it is told of, and what is in them: it may change them without reading them first."""
    number: int = 1
    """Of its first request, among those of its purpose."""
    memory: WritableMemory | None = None
    """The memories that it may change."""

    @classmethod
    def of(cls, agent: Agent) -> "HelperStart":
        """The conversation as it is now."""
        tokens, cached = agent.meter.tokens(agent.conversation), agent.meter.cached(agent.conversation)
        return cls(conversation=agent.conversation.fork(), tokens=tokens, cached=cached)


async def deny_all(tool: Tool, _arguments: Any, _workspace: Workspace) -> str:
    """The `Denial` of a helper that has only to answer."""
    return f"{tool.name} cannot be used here. Answer from what you know already."


async def run_helper(
    agent: Agent,
    directive: str,
    purpose: str,
    *,
    max_turns: int = 1,
    denial: Denial = deny_all,
    max_tokens: int = MAX_TOKENS,
    start: HelperStart | None = None,
    until: Until = lambda _reply, _answers: False,
) -> Reply:
    """Let a fork of *agent*, from *start* or from where it is now, follow *directive*; returns its last reply.

    It sends the agent's own bytes, tools included, so that the cache serves it; what it may not call is denied by
    *denial*. It ends when it makes no calls, when *until* says so of the answers to them, and with its *max_turns*-th
    reply at the latest, whose calls are not run. *until* hears of every reply, also if a later one fails.
    Neither conversation nor transcript of the agent change, and what it reads counts as read by itself alone; it may
    run while the agent goes on. Cancellation stops it at once. Raises as `ModelClient.ask` does.
    """
    start = start or HelperStart.of(agent)
    helper = start.conversation.fork_with(render("helper_placeholder"), directive)
    workspace = _workspace(agent, start)
    for turn in range(1, max_turns + 1):
        reply = await agent.client.ask(_request(agent, helper, start, purpose, turn, max_tokens))
        is_last = not reply.tool_calls or turn == max_turns
        answers = () if is_last else await _answers(agent, reply, workspace, denial)
        if until(reply, answers) or is_last:
            break
        helper.append("assistant", [block.data for block in reply.sendable])
        helper.append("user", [answer.result.block(answer.call["id"]) for answer in answers])
    return reply


def _request(
    agent: Agent, helper: Conversation, start: HelperStart, purpose: str, turn: int, max_tokens: int
) -> ModelRequest:
    own = (helper.prefix[index].data for index in range(len(start.conversation), len(helper)))
    max_tokens = min(max_tokens, agent.model.max_output)
    return ModelRequest(
        body=helper.render(max_tokens=max_tokens, ttl=agent.ttl, helper=True).chunks,
        model=agent.model,
        max_tokens=max_tokens,
        prompt_tokens=start.tokens + sum(map(estimate_block, own)),
        prefix=helper.prefix_hash,
        expected_read=start.cached,
        ttl=agent.ttl.longest,
        purpose=purpose,
        turn=start.number + turn - 1,
        api_version=helper.header.api_version,
        betas=helper.header.betas,
        identity=agent.identity,
    )


async def _answers(agent: Agent, reply: Reply, workspace: Workspace, denial: Denial) -> Sequence[ToolAnswer]:
    """Run the calls of one reply, one after another; long results are kept as the agent's own would be."""
    answers: Sequence[ToolAnswer] = [await _answer(agent, call, reply, workspace, denial) for call in reply.tool_calls]
    for step in agent.pipeline.tool_results:
        answers = await step.transform_results(agent, answers)
    return answers


async def _answer(agent: Agent, call: dict[str, Any], reply: Reply, workspace: Workspace, denial: Denial) -> ToolAnswer:
    result = UNREADABLE
    if call["id"] not in reply.unreadable_calls:
        result = await call_tool(agent.tools, call["name"], call["input"], workspace, denial)
    return ToolAnswer(call=call, tool=agent.tools.get(call["name"]), result=result)


def _workspace(agent: Agent, start: HelperStart) -> Workspace:
    """The agent's, with a memory of files of its own, those among them that it is told of.

    Commands in the background there can be none: nobody would hear of them.
    """
    theirs = agent.workspace
    workspace = Workspace(root=theirs.root, scratch=theirs.scratch, memory=start.memory, sandbox=theirs.sandbox)
    directory = str(theirs.shell.directory.relative_to(theirs.shell.root))
    workspace.restore(WorkspaceChange(seen=theirs.seen.known(), directory=directory))
    for path, content in start.known.items():
        workspace.seen.record(path, content)
    return workspace
