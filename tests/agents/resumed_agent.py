"""An agent resumed from its transcript, as a new process would do it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.transcript import TranscriptWriter
from coterie.memory.layer_settings import LayersSettings
from tests.agents.opened_layers import build_pipeline
from tests.agents.scripted_agent import build_agent


@contextmanager
def open_resumed_agent(
    agent: Agent, path: Path, layers: LayersSettings | None = None, compact: CompactionStep | None = None
) -> Iterator[Agent]:
    """Resume the agent whose transcript is at *path*, with the model, tools and files of *agent*.

    The server is the same, so it still knows which thinking belongs to which call.
    """
    with TranscriptWriter.open(path, agent.clock) as transcript:
        assert transcript.loaded.conversation is not None
        again = build_agent(
            transcript,
            agent.client,
            agent.workspace.root,
            *agent.tools.values(),
            model=agent.model,
            thresholds=agent.meter.thresholds,
            denial=agent.denial,
            clock=agent.clock,
        )
        if layers is not None:
            again.pipeline = build_pipeline(layers, dict(agent.tools), agent.workspace.scratch, compact)
        yield again
