"""A fork inside the process of its parent, for benchmarks and tests."""

from collections.abc import Callable
from typing import Any

from coterie.agents.loop.agent import Agent, Pipeline
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.loop.conversation.transcript_records import UserTextRecord
from coterie.agents.loop.forks.fork import begin_fork
from coterie.agents.loop.forks.fork_point import ForkPoint
from coterie.agents.tools.tool import Workspace


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
    workspace.restore(point.workspace_state)
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
