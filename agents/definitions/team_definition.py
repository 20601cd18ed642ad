"""Team definition: lead, members and first tasks, and the briefing of the lead about them."""

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

import attrs
import msgspec

from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.prompts import render
from coterie.agents.root_link.spawn_request import SpawnOptions, SpawnRequest
from coterie.errors import ConfigInvalid
from coterie.session_directory import COORDINATOR, SessionDirectory


@attrs.frozen(kw_only=True)
class TeamLead:
    """What the agent is that the user talks to."""

    agent: str | None = None
    """Its kind; None for what the settings say."""
    model: str | None = None
    """An id or alias; None for what the settings say."""


@attrs.frozen(kw_only=True)
class TeamMember(SpawnOptions):
    """Teammate that the lead has from the beginning, with the names of the keys of its file."""

    name: str
    type: str
    """Agent type."""
    prompt: str = ""
    """First message to the member; empty for a member that waits for messages."""
    worktree: bool = False
    """True if the member works in a git worktree of its own."""

    def request(self) -> SpawnRequest:
        """Request that spawns the member as a teammate, with all of its options."""
        return SpawnRequest(
            task=self.prompt,
            definition=self.type,
            name=self.name,
            stays=True,
            isolation="worktree" if self.worktree else None,
            **self.options,
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
class TeamDefinition:
    """A team that can be started; `load_team` has found no flaw in it."""

    name: str
    coordinator: bool = False
    """Whether the lead only delegates."""
    lead: TeamLead | None = None
    members: tuple[TeamMember, ...] = ()
    tasks: tuple[TeamTask, ...] = ()
    """A task stands behind those that it waits for: they get their numbers in this order, from 1."""

    @property
    def lead_type(self) -> str | None:
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
    def from_bytes(cls, data: bytes) -> "TeamDefinition":
        """The team that `to_bytes` wrote. Raises `ValueError`, whatever *data* is."""
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(str(exc)) from exc


_decoder = msgspec.json.Decoder(TeamDefinition)

PURPOSE_LENGTH = 200
"""Characters of a member's prompt that its lead is told."""
APPROVERS = {"lead": "the lead", "human": "the user", None: "whom the settings name"}


def team_briefing(team: TeamDefinition) -> str:
    """The members and the first tasks of *team*; the same for the same team, whoever has begun by now."""
    texts = []
    if team.members:
        texts.append(render("team", name=team.name, members="\n".join(map(_member, team.members))))
    if team.tasks:
        texts.append(render("team_tasks", tasks="\n".join(_tasks(team))))
    return "\n\n".join(texts)


def plan_notice(plan: PlanPolicy) -> str:
    """Who approves a plan."""
    return f"the rule {', '.join(plan.paths)}" if plan.by == "rule" else APPROVERS[plan.by]


def _member(member: TeamMember) -> str:
    words = " ".join(member.prompt.split())
    purpose = escape(words if len(words) <= PURPOSE_LENGTH else f"{words[:PURPOSE_LENGTH]}...")
    facts = [
        f"kind {member.type}",
        "in a git worktree of its own" if member.worktree else "",
        f"its plan is approved by {'you' if member.plan.by == 'lead' else plan_notice(member.plan)}"
        if member.plan
        else "",
        f"may spend ${member.budget_usd}" if member.budget_usd else "",
    ]
    about = "; ".join(filter(None, facts))
    return f"- {member.name} ({about}). {f'Its task: {purpose}' if purpose else 'It waits for messages.'}"


def _tasks(team: TeamDefinition) -> Iterator[str]:
    for task in team.tasks:
        yield f"- {team.numbers[task.key]} [{_state(team, task)}] {escape(task.subject)}"


def _state(team: TeamDefinition, task: TeamTask) -> str:
    blockers = ", ".join(str(team.numbers[key]) for key in task.blocked_by)
    state = f"blocked by {blockers}" if blockers else "open"
    return f"{state}, meant for {task.owner}" if task.owner else state


TEAM_FILE = "team.json"
"""In the directory of a session that was begun with a team."""


def load_recorded_team(session: SessionDirectory) -> TeamDefinition | None:
    """The team that *session* was begun with; None if with none. Blocks. Raises `ConfigInvalid`."""
    path = session.directory / TEAM_FILE
    try:
        return TeamDefinition.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise ConfigInvalid(str(path), f"cannot be read: {exc}") from exc
