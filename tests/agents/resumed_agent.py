"""An agent resumed from its transcript, as a new process would do it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.agents.tools.tool import Workspace
from coterie.memory.layer_settings import LayersSettings
from tests.agents.opened_layers import build_pipeline


@contextmanager
def open_resumed_agent(
    agent: Agent, path: Path, layers: LayersSettings | None = None, compact: CompactionStep | None = None
) -> Iterator[Agent]:
    """Resume the agent whose transcript is at *path*, with the model, tools and files of *agent*.

    The server is the same, so it still knows which thinking belongs to which call.
    """
    with TranscriptWriter.open(path, agent.clock) as transcript:
        conversation = transcript.loaded.conversation
        assert conversation is not None
        again = Agent(
            identity=agent.identity,
            model=agent.model,
            client=agent.client,
            conversation=conversation,
            transcript=transcript,
            tools=agent.tools,
            workspace=Workspace(root=agent.workspace.root, scratch=agent.workspace.scratch),
            denial=agent.denial,
            meter=WindowMeter(agent.meter.thresholds),
            clock=agent.clock,
            durability=agent.durability,
        )
        if layers is not None:
            again.pipeline = build_pipeline(layers, dict(agent.tools), agent.workspace.scratch, compact)
        yield again
