"""Who says what a subagent is at while it works, as the settings say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coterie.agents.agent import Agent
from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import LayerFailed
from coterie.agents.gate import Gate
from coterie.agents.models import Model, known_models
from coterie.agents.progress import ImpatientGate, open_summaries
from coterie.agents.progress.summariser import LAYER
from coterie.orchestrator.seat import Work
from coterie.orchestrator.session import MAIN

PATIENCE = 5.0
"""Seconds that a summary waits at the gate: who waits longer meets a cool-down, or a crowd that is worth more."""
OFTEN = 0.1
"""Seconds between two looks at an agent, whatever the settings say."""


@asynccontextmanager
async def progress_told(agent: Agent, work: Work, gate: Gate) -> AsyncIterator[None]:
    """Tell what *agent* is at until the block ends; nobody does so for the lead, whose words the user reads anyway.

    Summaries pass *gate*, and are left out rather than waited for. A model that there is not is an event.
    """
    model = _model_of(agent, work)
    if model is None:
        yield
        return
    client = agent.client.through(ImpatientGate(gate=gate, patience=PATIENCE))
    async with open_summaries(agent, client, model, every=max(OFTEN, work.settings.progress.every)):
        yield


def _model_of(agent: Agent, work: Work) -> Model | None:
    """Whom to ask; None if nobody is to be."""
    given = work.settings.progress
    # A script that does not expect it has no reply for it, so that it must ask.
    is_on = not work.is_embedded if given.enabled is None else given.enabled
    if agent.identity.agent == MAIN or not is_on:
        return None
    try:
        return known_models().get(given.model)
    except ConfigInvalid as exc:
        agent.tell(LayerFailed(layer=LAYER, reason=str(exc)))
        return None
