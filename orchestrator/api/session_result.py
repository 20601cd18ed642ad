"""Result of a session, read from its files after its end."""

from collections import Counter
from decimal import Decimal
from itertools import islice
from pathlib import Path

import attrs

from coterie.agents.events.agent_events import Finished, RunStarted
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
    end: Finished | None = None
    began = ended = 0.0
    own = (observed for observed in read_session(session.directory, MAIN) if observed.agent == MAIN)
    for observed in islice(own, past[MAIN], None):
        match observed.event:
            case RunStarted():
                began = began or observed.at
            case Finished() as end:
                ended = observed.at
    if end is None:
        return None
    overview = read_overview(session)
    return SessionResult(
        session=session.id,
        reason=end.reason,
        text=end.result,
        turns=end.turns,
        usage=Usage(**end.usage),
        cost=Decimal(end.cost_usd),
        session_cost=overview.cost,
        seconds=ended - began,
        error=end.error,
        is_unreachable=end.is_unreachable,
        transcript=session.directory / "agents" / MAIN / TRANSCRIPT,
        agents=overview.agents,
    )
