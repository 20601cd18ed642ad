"""A chore reaches the agent that is to do it, and the roster says nothing new of that agent."""

from pathlib import Path

import msgspec
import pytest

from coterie.agents.root_link.job_messages import CompactJob, DreamJob, ExtractJob, OfflineJob, Pivot, parse_offline_job
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.orchestrator.root.root import lead_spec
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.supervisor.agent_run import AgentRun

CHORES = [
    None,
    CompactJob(pivot=Pivot(side="from", message=4)),
    ExtractJob(),
    DreamJob(is_forced=True, deletions="apply"),
]


@pytest.mark.parametrize("chore", CHORES)
def test_offline_job_survives_the_round_trip(chore: OfflineJob | None) -> None:
    wanted = SessionRequest(project=Path("/project"), task="Dream.", model="m", settings=Settings(), chore=chore)
    read = SessionRequest.from_bytes(wanted.to_bytes())
    assert read == wanted
    spec = lead_spec(read)
    assert (AgentRun(spec=spec).member_origin is None) == (chore is not None)
    assert AgentSpec.from_bytes(spec.to_bytes()).job == chore


def test_invalid_offline_job_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        parse_offline_job({"word": "sleep"})
