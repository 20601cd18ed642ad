"""An agent that is taken up again in a test, from a transcript, as a new process would."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.agents.agent import Agent
from coterie.agents.compaction.step import CompactContext
from coterie.agents.conversation import TranscriptWriter
from coterie.agents.pipeline import LayerSettings, layered_pipeline
from coterie.agents.tools.tool import Workspace
from coterie.agents.window import WindowMeter


@contextmanager
def taken_up(
    agent: Agent, path: Path, layers: LayerSettings | None = None, compact: CompactContext | None = None
) -> Iterator[Agent]:
    """The agent whose transcript is at *path*: with the model, the tools and the files of *agent*, and nothing else.

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
            again.pipeline = layered_pipeline(layers, dict(agent.tools), agent.workspace.scratch, compact)
        yield again
