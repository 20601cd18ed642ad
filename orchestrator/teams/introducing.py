"""What a lead is told of its team before its task: who is in it, what for, and what there is to do."""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.prompt import render
from coterie.orchestrator.teams.team import Team, TeamMember, TeamTask

PURPOSE = 200
"""Characters of a member's prompt that its lead is told."""
APPROVERS = {"lead": "the lead", "human": "the user", None: "whom the settings name"}


def introduction(team: Team) -> str:
    """The members and the first tasks of *team*; the same for the same team, whoever has begun by now."""
    texts = []
    if team.members:
        texts.append(render("team", name=team.name, members="\n".join(map(_member, team.members))))
    if team.tasks:
        texts.append(render("team_tasks", tasks="\n".join(_tasks(team))))
    return "\n\n".join(texts)


def plan_words(plan: PlanPolicy) -> str:
    """Who approves a plan."""
    return f"the rule {', '.join(plan.paths)}" if plan.by == "rule" else APPROVERS[plan.by]


def _member(member: TeamMember) -> str:
    words = " ".join(member.prompt.split())
    purpose = escape(words if len(words) <= PURPOSE else f"{words[:PURPOSE]}...")
    facts = [
        f"kind {member.type}",
        "in a git worktree of its own" if member.worktree else "",
        f"its plan is approved by {'you' if member.plan.by == 'lead' else plan_words(member.plan)}"
        if member.plan
        else "",
        f"may spend ${member.budget_usd}" if member.budget_usd else "",
    ]
    about = "; ".join(filter(None, facts))
    return f"- {member.name} ({about}). {f'Its task: {purpose}' if purpose else 'It waits for messages.'}"


def _tasks(team: Team) -> Iterator[str]:
    for task in team.tasks:
        yield f"- {team.numbers[task.key]} [{_state(team, task)}] {escape(task.subject)}"


def _state(team: Team, task: TeamTask) -> str:
    blockers = ", ".join(str(team.numbers[key]) for key in task.blocked_by)
    state = f"blocked by {blockers}" if blockers else "open"
    return f"{state}, meant for {task.owner}" if task.owner else state
