"""Result of a session, read from its files after its end."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import attrs

from coterie.agents.events.agent_events import Finished, RunStarted
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.overview import AgentSummary, read_overview
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory


@attrs.frozen(kw_only=True)
class SessionResult:
    """Result of a session: the end of the lead's run, its costs, and the last states of all agents."""

    session: str
    """Session id, with which the session can be resumed."""
    reason: str
    """End reason: completed, budget, max_turns, cancelled, model_error ...; docs/python.md lists all."""
    text: str
    """Final text of the lead."""
    turns: int
    """Turns of the lead in this run."""
    usage: Usage
    """Tokens of the lead, in this run."""
    cost: Decimal
    """Dollars of the lead in this run, exact."""
    session_cost: Decimal
    """Dollars of all agents, in this run and earlier ones."""
    seconds: float
    error: str | None
    """Error text of the model API or of the gateway; None without an error."""
    is_unreachable: bool
    """True if the model API could not be reached."""
    transcript: Path
    """Transcript file of the lead."""
    agents: tuple[AgentSummary, ...]
    """All agents including the lead, with their last states."""

    @property
    def is_done(self) -> bool:
        """True if the lead completed its task."""
        return self.reason == "completed"

    def state(self, name: str) -> str:
        """Return the last state of agent *name*: done, failed, killed, idle or interrupted. Raises `KeyError`."""
        return {agent.name: agent.state for agent in self.agents}[name]


def read_result(session: SessionDirectory, past: Counter[str]) -> SessionResult | None:
    """Read the result of the run of *session* after the *past* events; None if the lead has not finished.

    Blocks on the disk; raises `OSError`.
    """
    finished: tuple[Finished, float] | None = None
    began = 0.0
    for observed in _read_lead_events(session, past[MAIN]):
        match observed.event:
            case RunStarted():
                began = began or observed.at
            case Finished() as event:
                finished = event, observed.at
    return None if finished is None else _result(session, finished[0], finished[1] - began)


def _read_lead_events(session: SessionDirectory, past: int) -> Iterator[SessionEvent]:
    """Yield the events of the lead after its first *past* events."""
    own = (observed for observed in read_session(session.directory, MAIN) if observed.agent == MAIN)
    return (observed for number, observed in enumerate(own) if number >= past)


def _result(session: SessionDirectory, end: Finished, seconds: float) -> SessionResult:
    overview = read_overview(session)
    return SessionResult(
        session=session.id,
        reason=end.reason,
        text=end.result,
        turns=end.turns,
        usage=Usage(**end.usage),
        cost=Decimal(end.cost_usd),
        session_cost=overview.cost,
        seconds=seconds,
        error=end.error,
        is_unreachable=end.is_unreachable,
        transcript=session.directory / "agents" / MAIN / TRANSCRIPT,
        agents=overview.agents,
    )
