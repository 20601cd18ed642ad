"""Whose progress is told, and by which settings."""

from pathlib import Path
from typing import Any

import pytest

from coterie.agents.agent import Agent
from coterie.agents.events import LayerFailed
from coterie.agents.gate import LocalGate
from coterie.agents.model.request import Identity
from coterie.agents.models import known_models
from coterie.agents.progress import Summariser
from coterie.orchestrator.keeping_watch import progress_told
from coterie.orchestrator.seat import Work
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.settings import Settings
from tests.agents.working import open_agent, watch
from tests.servers import ECHO


def work(project: Path, *, is_embedded: bool = False, **progress: Any) -> Work:
    settings = Settings.build({f"progress.{key}": value for key, value in progress.items()}, {})
    model = known_models().get("sonnet")
    return Work(task="t", project=project, model=model, settings=settings, is_embedded=is_embedded)


async def is_watched(agent: Agent, given: Work) -> bool:
    before = agent.pipeline
    async with progress_told(agent, given, LocalGate()):
        watchers = [step for step in agent.pipeline.replies if isinstance(step, Summariser)]
    agent.pipeline = before
    return bool(watchers)


@pytest.mark.parametrize(
    ("name", "is_embedded", "given", "expected"),
    [
        ("scout", False, {}, True),
        (MAIN, False, {"enabled": True}, False),
        ("scout", False, {"enabled": False}, False),
        ("scout", True, {}, False),
        ("scout", True, {"enabled": True}, True),
    ],
)
async def test_all_but_the_lead_are_watched_unless_it_is_off_or_the_model_is_scripted(
    tmp_path: Path, *, name: str, is_embedded: bool, given: dict[str, Any], expected: bool
) -> None:
    async with open_agent(ECHO, tmp_path) as (agent, _):
        agent.identity = Identity(agent=name)
        assert await is_watched(agent, work(tmp_path, is_embedded=is_embedded, **given)) == expected


async def test_a_model_that_there_is_not_is_an_event_and_nobody_is_asked(tmp_path: Path) -> None:
    async with open_agent(ECHO, tmp_path) as (agent, _):
        agent.identity, events = Identity(agent="scout"), watch(agent)
        assert not await is_watched(agent, work(tmp_path, model="hayku"))
    (event,) = events
    assert isinstance(event, LayerFailed)
    assert (event.layer, "'hayku' is not a known model; did you mean haiku" in event.reason) == ("progress", True)
