"""Lets the model know that a command it left in the background has ended."""

from collections.abc import Sequence

import attrs

from coterie.agents.agent import NOTHING, Added, Agent, Answer
from coterie.agents.conversation import text_block


@attrs.frozen
class TellJobNews:
    """Adds what the jobs of the agent's shell have to say."""

    def add(self, agent: Agent, _answers: Sequence[Answer]) -> Added:
        """One line for each job that has ended since it was last asked."""
        news = agent.workspace.jobs.take_news() if agent.workspace.jobs else ()
        return Added(blocks=(text_block("\n".join(news)),)) if news else NOTHING
