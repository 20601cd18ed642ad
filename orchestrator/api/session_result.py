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
    """How the run of the lead ended, and what is left of its team."""

    session: str
    """The id, by which the session can be opened again."""
    reason: str
    """completed, or why not: budget, max_turns, cancelled, model_error ...; docs/python.md has them all."""
    text: str
    """What the lead said last."""
    turns: int
    """Of the lead."""
    usage: Usage
    """Tokens of the lead, in this run."""
    cost: Decimal
    """Dollars of the lead in this run, exact."""
    session_cost: Decimal
    """Dollars of all agents, in this run and those before."""
    seconds: float
    error: str | None
    """What the model's service, or the gate, said."""
    is_unreachable: bool
    """Whether the error is that no model could be asked."""
    transcript: Path
    """Of the lead."""
    agents: tuple[AgentSummary, ...]
    """All of them, the lead too, with their last states."""

    @property
    def is_done(self) -> bool:
        """Whether the lead was done with its task by itself."""
        return self.reason == "completed"

    def state(self, name: str) -> str:
        """What became of the agent *name*: done, failed, killed, idle, interrupted. Raises `KeyError`."""
        return {agent.name: agent.state for agent in self.agents}[name]


def read_result(session: SessionDirectory, past: Counter[str]) -> SessionResult | None:
    """What came of the run of *session* behind the *past* events; None if its lead has not said so.

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
    """What the lead told and recorded behind the first *past* events of it."""
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
