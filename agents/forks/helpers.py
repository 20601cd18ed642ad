"""Helpers: short forks in the agent's own process, which serve a layer and leave no trace in the conversation."""

from collections.abc import Sequence
from typing import Any

from coterie.agents.agent import Agent, Answer
from coterie.agents.conversation import Conversation
from coterie.agents.model.reply import Reply
from coterie.agents.model.request import ModelRequest
from coterie.agents.prompt import render
from coterie.agents.tokens import estimate_block
from coterie.agents.tools.tool import Denial, Tool, ToolResult, Workspace, WorkspaceChange, call_tool

MAX_TOKENS = 8_000
UNREADABLE = ToolResult(text="The input of this call is not valid JSON. Make the call again.", is_error=True)


async def deny_all(tool: Tool, _arguments: Any, _workspace: Workspace) -> str:
    """The `Denial` of a helper that has only to answer."""
    return f"{tool.name} cannot be used here. Answer from what you know already."


async def ask_helper(
    agent: Agent,
    directive: str,
    purpose: str,
    *,
    max_turns: int = 1,
    denial: Denial = deny_all,
    max_tokens: int = MAX_TOKENS,
) -> Reply:
    """Let a fork of *agent* follow *directive*, and return its last reply.

    It sends the agent's own bytes, tools included, so that the cache serves it; what it may not call is denied by
    *denial*. It ends when it makes no calls, and with its *max_turns*-th reply at the latest, whose calls are not run.
    Neither conversation nor transcript of the agent change, and what it reads counts as read by itself alone; it may
    run while the agent goes on. Cancellation stops it at once. Raises as `ModelClient.ask` does.
    """
    helper = agent.conversation.fork_with(render("fork_placeholder"), directive)
    inherited = len(agent.conversation)
    known = agent.meter.tokens(agent.conversation), agent.meter.cached(agent.conversation)
    workspace = _workspace(agent)
    for turn in range(1, max_turns + 1):
        request = _request(agent, helper, inherited, known, purpose=purpose, turn=turn, max_tokens=max_tokens)
        reply = await agent.client.ask(request)
        if not reply.tool_calls or turn == max_turns:
            break
        helper.append("assistant", [block.data for block in reply.sendable])
        helper.append("user", await _results(agent, reply, workspace, denial))
    return reply


def _request(
    agent: Agent,
    helper: Conversation,
    inherited: int,
    known: tuple[int, int | None],
    *,
    purpose: str,
    turn: int,
    max_tokens: int,
) -> ModelRequest:
    tokens, cached = known
    own = (helper.prefix[index].data for index in range(inherited, len(helper)))
    max_tokens = min(max_tokens, agent.model.max_output)
    return ModelRequest(
        body=helper.render(max_tokens=max_tokens, ttl=agent.ttl, helper=True).chunks,
        model=agent.model,
        max_tokens=max_tokens,
        prompt_tokens=tokens + sum(map(estimate_block, own)),
        prefix=helper.prefix_hash,
        expected_read=cached,
        ttl=agent.ttl.longest,
        purpose=purpose,
        turn=turn,
        api_version=helper.header.api_version,
        betas=helper.header.betas,
        identity=agent.identity,
    )


async def _results(agent: Agent, reply: Reply, workspace: Workspace, denial: Denial) -> list[bytes]:
    """Run the calls of one reply, one after another; long results are kept as the agent's own would be."""
    answers: Sequence[Answer] = [await _answer(agent, call, reply, workspace, denial) for call in reply.tool_calls]
    for step in agent.pipeline.results:
        answers = await step.keep(agent, answers)
    return [answer.result.block(answer.call["id"]) for answer in answers]


async def _answer(agent: Agent, call: dict[str, Any], reply: Reply, workspace: Workspace, denial: Denial) -> Answer:
    result = UNREADABLE
    if call["id"] not in reply.unreadable_calls:
        result = await call_tool(agent.tools, call["name"], call["input"], workspace, denial)
    return Answer(call=call, tool=agent.tools.get(call["name"]), result=result)


def _workspace(agent: Agent) -> Workspace:
    """The agent's, with a memory of files of its own.

    Commands in the background there can be none: nobody would hear of them.
    """
    theirs = agent.workspace
    workspace = Workspace(root=theirs.root, scratch=theirs.scratch)
    directory = str(theirs.shell.directory.relative_to(theirs.shell.root))
    workspace.restore(WorkspaceChange(seen=theirs.seen.known(), directory=directory))
    return workspace
