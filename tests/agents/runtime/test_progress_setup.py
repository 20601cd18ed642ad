"""Setup of progress summaries by agent and settings."""

from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.agents.runtime.agent_spec import AgentSpec, Services
from coterie.agents.runtime.setup.layer_setup import build_progress
from coterie.agents.settings import Settings
from coterie.session_directory import MAIN
from tests.agents.scripted_agent import open_agent, watch
from tests.embedded_server import ECHO


def spec(*, is_embedded: bool = False, **progress: Any) -> AgentSpec:
    settings = Settings.build({f"progress.{key}": value for key, value in progress.items()}, {})
    services = Services(api_url="http://127.0.0.1:1" if is_embedded else None)
    return AgentSpec(name="scout", task="t", model="sonnet", settings=settings, services=services)


def is_watched(agent: Agent, given: AgentSpec) -> bool:
    return build_progress(agent, given, LocalGateway()) is not None


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
async def test_progress_is_on_for_all_agents_but_the_lead_by_default(
    tmp_path: Path, *, name: str, is_embedded: bool, given: dict[str, Any], expected: bool
) -> None:
    async with open_agent(ECHO, tmp_path) as (agent, _):
        agent.identity = Identity(agent=name)
        assert is_watched(agent, spec(is_embedded=is_embedded, **given)) == expected


async def test_unknown_progress_model_is_an_event(tmp_path: Path) -> None:
    async with open_agent(ECHO, tmp_path) as (agent, _):
        agent.identity, events = Identity(agent="scout"), watch(agent)
        assert not is_watched(agent, spec(model="hayku"))
    (event,) = events
    assert isinstance(event, LayerFailed)
    assert (event.layer, "'hayku' is not a known model; did you mean haiku" in event.reason) == ("progress", True)
