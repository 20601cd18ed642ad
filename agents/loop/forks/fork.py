"""Forks: creation of an agent's fork point, and of an agent from a fork point."""

from collections.abc import Callable
from typing import Any

from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.forks.fork_point import ForkPoint, ForkRefused
from coterie.agents.prompts import render
from coterie.agents.tools.tool import Workspace, WorkspaceChange

_TAG = b'{"type":"text","text":"<fork-directive>'
"""First bytes of the block of a directive; see `prompts/fork.md`."""


def create_fork_point(agent: Agent) -> ForkPoint:
    """Create a fork point at the end of *agent*'s last reply.

    Raises `ForkRefused` for an agent that is a fork itself or has no reply yet.
    """
    conversation = agent.conversation
    if agent.fork_of is not None or is_fork(conversation):
        raise ForkRefused("A fork cannot be forked. Do the work yourself, or report what is not done.")
    end = _end_of_reply(conversation.prefix)
    later = [conversation.prefix[index].data for index in range(end, len(conversation))]
    previous = conversation.marks.previous
    return ForkPoint(
        parent=agent.identity.agent,
        prefix=conversation.prefix.cut(end),
        epoch=conversation.epoch,
        previous=previous if previous is not None and previous < end else None,
        tokens=agent.meter.tokens(conversation) - sum(map(estimate_block, later)),
        expected_read=agent.meter.cached(conversation),
        used_at=agent.replied_at,
        ttl=agent.ttl,
        seen=agent.workspace.seen.known(),
        directory=str(agent.workspace.shell.directory.relative_to(agent.workspace.shell.root)),
        words=tuple(agent.user_texts),
        skills=agent.workspace.skills.known(),
    )


def begin_fork(point: ForkPoint, directive: str) -> Conversation:
    """Create the conversation of a fork from its *point* and *directive*.

    Siblings differ only in the last block, and their first request marks the end of the part that they share. Raises
    `PrefixDiffers`.
    """
    fork = point.conversation().fork_with(render("fork_placeholder"), f"{render('fork')}\n\n{directive}")
    point.check(fork.prefix)
    return fork


def is_fork(conversation: Conversation) -> bool:
    """Return True if *conversation* was created by `begin_fork`: one of its user blocks is a directive."""
    prefix = conversation.prefix
    indexes = range(prefix.prompt_length, len(prefix))
    return any(prefix[index].role == "user" and prefix[index].data.startswith(_TAG) for index in indexes)


def fork_workspace(point: ForkPoint, workspace: Workspace) -> None:
    """Give the workspace of a fork its parent's state: files read, working directory and skills."""
    workspace.restore(WorkspaceChange(seen=point.seen, directory=point.directory, skills=point.skills))


def fork_agent(
    parent: Agent,
    point: ForkPoint,
    directive: str,
    *,
    transcript: TranscriptWriter,
    workspace: Workspace,
    build_pipeline: Callable[[Agent], Pipeline],
    **changes: Any,
) -> Agent:
    """Create a fork of *parent* in the same process, ready for `run_loop`.

    *transcript*, *workspace* and the pipeline belong to the fork; it shares the rest with the parent unless *changes*
    overrides it. Records the first message. Raises `PrefixDiffers` and `OSError`.
    """
    common = ("identity", "model", "client", "tools", "denial", "clock", "emit", "durability", "ttl")
    given = {name: getattr(parent, name) for name in common} | changes
    meter = WindowMeter(parent.meter.thresholds)
    point.restore_meter(meter)
    fork_workspace(point, workspace)
    fork = Agent(
        conversation=begin_fork(point, directive),
        transcript=transcript,
        workspace=workspace,
        build_pipeline=build_pipeline,
        meter=meter,
        fork_of=point.parent,
        inherited=len(point.prefix),
        user_texts=[*point.words, directive],
        **given,
    )
    transcript.record(fork.conversation, UserTextRecord(texts=fork.user_texts))
    return fork


def _end_of_reply(prefix: Prefix) -> int:
    """Return the number of segments up to the end of the last reply."""
    for index in range(len(prefix) - 1, prefix.prompt_length - 1, -1):
        if prefix[index].role == "assistant":
            return index + 1
    raise ForkRefused("There is nothing to fork yet: a fork begins at the end of its parent's last reply.")
