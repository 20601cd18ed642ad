"""Team definition: the lead (first agent), members and first tasks of a team, and the text about them for the lead."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

import attrs
import msgspec

from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.prompts import render
from coterie.agents.root_link.spawn_request import SpawnOptions, SpawnRequest
from coterie.errors import ConfigInvalid
from coterie.session_directory import COORDINATOR, SessionDirectory

PURPOSE_LENGTH = 200
"""Maximum length of a member's prompt in the text that tells the lead about its team, in characters."""
APPROVERS = {"lead": "the lead", "human": "the user", None: "the approver in the settings"}
TEAM_FILE = "team.json"
"""Name of the file that records the team of a session, in the directory of the session."""


@attrs.frozen(kw_only=True)
class TeamLead:
    """Lead of a team: the first agent of the session, to which the user talks."""

    agent: str | None = None
    """Agent type of the lead; None for the agent type in the settings."""
    model: str | None = None
    """Model id or alias; None for the model in the settings."""


@attrs.frozen(kw_only=True)
class TeamMember(SpawnOptions):
    """Teammate (agent that waits for messages after its task) that a team starts with; fields as in the team file."""

    name: str
    type: str
    """Agent type of the member, the name of an agent definition."""
    prompt: str = ""
    """First message to the member; empty if the member waits for messages from the start."""
    worktree: bool = False
    """True if the member works in a separate git worktree."""

    def request(self) -> SpawnRequest:
        """Return the request that starts the member as a teammate of the lead, with all of its options."""
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
    """Task that is on the shared task list of the team when the session begins."""

    key: str
    """Name of the task in the team file, used by `blocked_by`; on the task list the task has a number instead."""
    subject: str
    description: str = ""
    owner: str | None = None
    """Name of the member that the task is meant for; None if any member may do the task."""
    blocked_by: tuple[str, ...] = ()
    """Keys of the tasks that must be done before this task can be claimed."""


@attrs.frozen(kw_only=True)
class TeamDefinition:
    """Definition of a team: the content of a team file after its validation by `load_team`."""

    name: str
    coordinator: bool = False
    """True if the lead only delegates work to other agents (agent type `coordinator`)."""
    lead: TeamLead | None = None
    members: tuple[TeamMember, ...] = ()
    tasks: tuple[TeamTask, ...] = ()
    """Tasks in the order of their numbers, from 1; a task comes after all tasks that block it."""

    @property
    def lead_type(self) -> str | None:
        """Agent type of the lead; None for the agent type in the settings."""
        if self.coordinator:
            return COORDINATOR
        return None if self.lead is None else self.lead.agent

    @property
    def lead_model(self) -> str | None:
        """Model id or alias for the lead; None for the model in the settings."""
        return None if self.lead is None else self.lead.model

    @property
    def numbers(self) -> Mapping[str, int]:
        """Number of each task on the task list of a new session, by the key of the task."""
        return {task.key: number for number, task in enumerate(self.tasks, 1)}

    def requests(self) -> tuple[SpawnRequest, ...]:
        """Return the requests that start the members as teammates, in the order of the team file.

        A member's prompt, if it has one, is extended by a list of the tasks that are meant for the member.
        """
        numbers, requests = self.numbers, []
        for member in self.members:
            request = member.request()
            assigned = [f"{numbers[task.key]} ({task.subject})" for task in self.tasks if task.owner == member.name]
            if request.task and assigned:
                text = f"{request.task}\n\nTasks on the task list for you: {', '.join(assigned)}."
                request = attrs.evolve(request, task=text)
            requests.append(request)
        return tuple(requests)

    def to_bytes(self) -> bytes:
        """Encode the team as indented JSON, with the fields in the order of their declaration."""
        return msgspec.json.format(msgspec.json.encode(attrs.asdict(self)), indent=2) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "TeamDefinition":
        """Decode the result of `to_bytes`. Raises `ValueError` for any invalid *data*."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(str(exc)) from exc


def team_briefing(team: TeamDefinition) -> str:
    """Return the text that tells the lead about its members and first tasks; the same team gives the same text."""
    texts = []
    if team.members:
        texts.append(render("team", name=team.name, members="\n".join(map(_member, team.members))))
    if team.tasks:
        texts.append(render("team_tasks", tasks="\n".join(_task(team, task) for task in team.tasks)))
    return "\n\n".join(texts)


def plan_notice(plan: PlanPolicy) -> str:
    """Return a phrase for the approver of an agent's plan: "the lead", or "the rule tests/**" with path patterns."""
    return f"the rule {', '.join(plan.paths)}" if plan.by == "rule" else APPROVERS[plan.by]


def _member(member: TeamMember) -> str:
    text = " ".join(member.prompt.split())
    purpose = escape(text if len(text) <= PURPOSE_LENGTH else f"{text[:PURPOSE_LENGTH]}...")
    facts = [
        f"type {member.type}",
        "in a separate git worktree" if member.worktree else "",
        f"its plan is approved by {'you' if member.plan.by == 'lead' else plan_notice(member.plan)}"
        if member.plan
        else "",
        f"may spend ${member.budget_usd}" if member.budget_usd else "",
    ]
    about = "; ".join(filter(None, facts))
    return f"- {member.name} ({about}). {f'Its task: {purpose}' if purpose else 'It waits for messages.'}"


def _task(team: TeamDefinition, task: TeamTask) -> str:
    blockers = ", ".join(str(team.numbers[key]) for key in task.blocked_by)
    state = f"blocked by {blockers}" if blockers else "open"
    owner = f", meant for {task.owner}" if task.owner else ""
    return f"- {team.numbers[task.key]} [{state}{owner}] {escape(task.subject)}"


def load_recorded_team(session: SessionDirectory) -> TeamDefinition | None:
    """Load the team with which *session* began; None if it began without one. Blocks. Raises `ConfigInvalid`."""
    path = session.directory / TEAM_FILE
    try:
        return TeamDefinition.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        reason = f"the record of this session's team cannot be read: {exc}; repair the file, or start a new session"
        raise ConfigInvalid(str(path), reason) from exc
