"""A team as its file describes it: the lead, the members that are there from the beginning, and the first tasks."""

from collections.abc import Mapping
from decimal import Decimal

import attrs
import msgspec

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.spawning import MemoryScope, Process, SpawnRequest
from coterie.orchestrator.session import COORDINATOR


@attrs.frozen(kw_only=True)
class Lead:
    """What the agent is that the user talks to."""

    agent: str | None = None
    """Its kind; None for what the settings say."""
    model: str | None = None
    """An id or alias; None for what the settings say."""


@attrs.frozen(kw_only=True)
class TeamMember:
    """A teammate that the lead has from the beginning."""

    name: str
    type: str
    """What kind of agent."""
    model: str | None = None
    """An id or alias; None is what its kind says, or else the lead's."""
    prompt: str = ""
    """What it begins with; empty for a member that waits for messages."""
    plan: PlanPolicy | None = None
    """Who must approve its plan before it may do more than read; None lets it begin."""
    budget_usd: Decimal | None = None
    """Dollars that it may spend, and all that it starts."""
    memory: MemoryScope | None = None
    """Where it keeps what it learns; None is what its kind says."""
    worktree: bool = False
    """Whether it works in a git worktree of its own."""
    process: Process | None = None
    """None is what its kind says."""

    def request(self) -> SpawnRequest:
        """What starts it: a teammate, who is there for messages when its prompt is done."""
        return SpawnRequest(
            task=self.prompt,
            definition=self.type,
            name=self.name,
            model=self.model,
            stays=True,
            isolation="worktree" if self.worktree else None,
            plan=self.plan,
            budget_usd=self.budget_usd,
            memory=self.memory,
            process=self.process,
        )


@attrs.frozen(kw_only=True)
class TeamTask:
    """What is on the task list from the beginning."""

    key: str
    """What other tasks of the file call it; on the list it has a number."""
    subject: str
    description: str = ""
    owner: str | None = None
    """Whom it is meant for; None for whoever claims it."""
    blocked_by: tuple[str, ...] = ()
    """The keys of the tasks that must be done before."""


@attrs.frozen(kw_only=True)
class Team:
    """A team that can be started; `read_team` has found no flaw in it."""

    name: str
    coordinator: bool = False
    """Whether the lead only delegates."""
    lead: Lead | None = None
    members: tuple[TeamMember, ...] = ()
    tasks: tuple[TeamTask, ...] = ()
    """A task stands behind those that it waits for: they get their numbers in this order, from 1."""

    @property
    def lead_kind(self) -> str | None:
        """What kind of agent leads; None for what the settings say."""
        if self.coordinator:
            return COORDINATOR
        return None if self.lead is None else self.lead.agent

    @property
    def lead_model(self) -> str | None:
        """Which model it has; None for what the settings say."""
        return None if self.lead is None else self.lead.model

    @property
    def numbers(self) -> Mapping[str, int]:
        """Which number each task has on the list of a session that begins with this team, by key."""
        return {task.key: number for number, task in enumerate(self.tasks, 1)}

    def requests(self) -> tuple[SpawnRequest, ...]:
        """What starts the members, in the order of the file; who begins at once is told which tasks are for it."""
        return tuple(self._request(member) for member in self.members)

    def _request(self, member: TeamMember) -> SpawnRequest:
        request, numbers = member.request(), self.numbers
        meant = [f"{numbers[task.key]} ({task.subject})" for task in self.tasks if task.owner == member.name]
        if not request.task or not meant:
            return request
        return attrs.evolve(request, task=f"{request.task}\n\nOn the task list are meant for you: {', '.join(meant)}.")

    def to_bytes(self) -> bytes:
        """JSON that people can read, too, with the fields in their order here."""
        return msgspec.json.format(msgspec.json.encode(attrs.asdict(self)), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Team":
        """The team that `to_bytes` wrote. Raises `ValueError`, whatever *data* is."""
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(str(exc)) from exc


_decoder = msgspec.json.Decoder(Team)
