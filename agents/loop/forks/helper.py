"""Helpers: short forks of an agent, inside its process, for background work, such as a summary of the conversation."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.loop.agent import UNREADABLE, Agent, ToolAnswer
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript_records import StateRecord
from coterie.agents.loop.model.reply import Reply
from coterie.agents.prompts import render
from coterie.agents.tools.tool import Denial, Tool, Workspace, call_tool
from coterie.agents.tools.workspace.file_change import WritableMemory

MAX_TOKENS = 8_000

Until = Callable[[Reply, Sequence[ToolAnswer]], bool]
"""Function called with each reply of a helper and the results of its tool calls; returns True to stop the helper."""


@attrs.frozen(kw_only=True)
class HelperStart:
    """Copy of an agent's conversation from which a helper (short fork) begins, while the agent continues."""

    conversation: Conversation
    turn: int
    """Number of the agent's next turn, the first one that `conversation` does not contain."""
    tokens: int
    cached: int | None
    """Tokens of `conversation` that are in the prompt cache; None if unknown."""
    known: Mapping[Path, bytes] = attrs.field(factory=dict)
    """Content by path of files that the helper's prompt quotes; the helper may edit them without reading them first."""
    memory: WritableMemory | None = None
    """Memory files that the helper may change; None if it changes no memories."""

    @classmethod
    def of(cls, agent: Agent) -> "HelperStart":
        """Return a copy of *agent*'s current conversation, from which a helper can begin later."""
        tokens, cached = agent.meter.tokens(agent.conversation), agent.meter.cached(agent.conversation)
        return cls(conversation=agent.conversation.fork(), turn=agent.turn, tokens=tokens, cached=cached)


async def deny_all(tool: Tool, _arguments: Any, _workspace: Workspace) -> str:
    """Return the reason, for the model, why a helper may not call *tool*: this helper may only reply with text."""
    return f"{tool.name} cannot be used here. Answer with text, from what you know already."


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
    """Let a helper continue *agent*'s conversation, or *start*, with the prompt *directive*; return its last reply.

    The helper sends the agent's own bytes, tools included, so that it reads the agent's prompt cache; *denial* decides
    which tools it may call. It ends when it makes no calls, when *until* returns True, and at the latest with reply
    number *max_turns*, whose calls are not run. *until* is called for every reply, even if a later one fails. The
    helper changes neither conversation nor transcript nor workspace of the agent, which may run at the same time.
    Cancellation stops the helper immediately. Raises as `ModelClient.ask` does.
    """
    start = start or HelperStart.of(agent)
    helper = start.conversation.fork_with(render("helper_placeholder"), directive)
    workspace = _workspace(agent, start)
    for turn in range(1, max_turns + 1):
        own = (helper.prefix[index].data for index in range(len(start.conversation), len(helper)))
        tokens = start.tokens + sum(map(estimate_block, own))
        rendered = helper.render(max_tokens=min(max_tokens, agent.model.max_output), ttl=agent.ttl, helper=True)
        request = agent.request(helper, rendered, prompt_tokens=tokens, expected_read=start.cached, purpose=purpose)
        reply = await agent.client.ask(request)
        agent.request_counts[purpose] += 1
        is_last = not reply.tool_calls or turn == max_turns
        answers = () if is_last else await _answers(agent, reply, workspace, denial)
        if until(reply, answers) or is_last:
            break
        helper.append("assistant", [block.data for block in reply.sendable])
        helper.append("user", [answer.result.block(answer.call["id"]) for answer in answers])
    return reply


async def _answers(agent: Agent, reply: Reply, workspace: Workspace, denial: Denial) -> Sequence[ToolAnswer]:
    """Run the tool calls of *reply* one after another, and return the results; long ones are stored in files."""
    answers: Sequence[ToolAnswer] = ()
    for call in reply.tool_calls:
        result = UNREADABLE
        if call["id"] not in reply.unreadable_calls:
            result = await call_tool(agent.tools, call["name"], call["input"], workspace, denial)
        answers = [*answers, ToolAnswer(call=call, tool=agent.tools.get(call["name"]), result=result)]
    for step in agent.pipeline.tool_results:
        answers = await step.transform_results(agent, answers)
    return answers


def _workspace(agent: Agent, start: HelperStart) -> Workspace:
    """Return a copy of the agent's workspace, so that files read by the helper do not count as read by the agent.

    The copy has no background jobs, because the helper ends before it could see their results.
    """
    parent = agent.workspace
    workspace = Workspace(root=parent.root, scratch=parent.scratch, memory=start.memory, sandbox=parent.sandbox)
    directory = str(parent.shell.directory.relative_to(parent.shell.root))
    workspace.restore(StateRecord(seen=parent.seen.known(), directory=directory))
    for path, content in start.known.items():
        workspace.seen.record(path, content)
    return workspace
