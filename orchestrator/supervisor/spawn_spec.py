"""Spec of an agent to spawn: its definition, model and limits, resolved from a spawn request."""

import itertools
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.job_messages import OfflineJob
from coterie.agents.root_link.spawn_request import Isolation, MemoryScope, SpawnRefused, SpawnRequest
from coterie.agents.runtime.spec import FORK_TYPE
from coterie.agents.settings import Settings
from coterie.agents.worktrees.worktree import Worktree
from coterie.errors import ConfigInvalid
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Member, MemberOrigin
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.errors import NameInvalid
from coterie.orchestrator.gateway.budgets import BudgetLimits
from coterie.orchestrator.settings.settings_loader import apply_definition
from coterie.session_directory import MAIN

MAX_DEPTH = 3
"""An agent that far below the lead starts none itself."""
TASK_LINE_LENGTH = 200
"""Characters of a task that the roster has."""


@attrs.frozen(kw_only=True)
class SpawnSpec:
    """An agent that is wanted, and for what."""

    name: str
    task: str
    model: str
    settings: Settings
    parent: str | None = None
    """Who started it, and is told what came of it; None for the lead."""
    definition: str | None = None
    own: BudgetLimits | None = None
    """What it may spend itself; None for no limit of its own."""
    subtree: BudgetLimits | None = None
    """What it and all it starts may spend."""
    is_bare: bool = False
    fork: str | None = None
    """The file of the fork point it begins with."""
    stays: bool = False
    """Whether it waits for messages when the task is done."""
    is_shared: bool = False
    """Whether it is a task in its parent's process, and has none of its own."""
    isolation: Isolation | None = None
    """What it is to have for itself to work in."""
    directory: str | None = None
    """Where it works; None for the session's project."""
    worktree: Worktree | None = None
    """The one it has, once it has its place."""
    is_kept: bool = False
    """Whether it is run again when a message comes for it later."""
    above: tuple[Settings, ...] = ()
    """Those of the agents above it, the nearest first."""
    chore: OfflineJob | None = None
    """What it is to do instead of a task, to end when that is done."""
    plan: PlanPolicy | None = None
    """Who must approve its plan before it may do more than read; None lets it begin."""
    memory: MemoryScope | None = None
    """Where it keeps what it learns; None is what its definition says."""
    team: tuple[SpawnRequest, ...] = ()
    """Whom the root starts for it once it is ready."""
    request: SpawnRequest | None = None
    """What was asked for; None for the lead, whom the user asks for each time."""
    report: MessageId | None = None
    """Under which its report is expected already; None for a new one."""
    is_taken_up: bool = False
    """Whether an earlier root had begun it: its transcript may have the task."""

    @property
    def depth(self) -> int:
        """How far below the lead it is."""
        return len(self.above)

    @property
    def member_origin(self) -> MemberOrigin | None:
        """What the roster says of it; None for what it has said before."""
        if self.chore is not None:
            return None
        kind = FORK_TYPE if self.fork is not None else self.definition
        task = " ".join(self.task.split())
        line = task if len(task) <= TASK_LINE_LENGTH else f"{task[:TASK_LINE_LENGTH]}..."
        return MemberOrigin(kind=kind, parent=self.parent, task=line)


def choose_name(request: SpawnRequest, members: Mapping[str, Member], claimed: Collection[str]) -> str:
    """A name for what is wanted that nobody at work has, nor anybody who is about to start. Raises `SpawnRefused`."""
    if request.name is None:
        stem = re.sub(r"[^a-z0-9]+", "-", request.definition.casefold()).strip("-")[:40] or "agent"
        names = (f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in members and name not in claimed)
    try:
        name = check_name(request.name)
    except NameInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    is_at_work = name in members and members[name].state != "ended"
    if name == MAIN or name in claimed or is_at_work:
        raise SpawnRefused(f"There is a {name} at work already; choose another name, or write to it.")
    return name


def resolve_spec(request: SpawnRequest, name: str, parent: SpawnSpec, project: Path) -> SpawnSpec:
    """What *parent* wants, made ready to be started as *name*. Blocks on the disk. Raises `SpawnRefused`."""
    if parent.depth >= MAX_DEPTH:
        raise SpawnRefused(f"An agent {MAX_DEPTH} levels below the lead cannot start another; do it yourself.")
    if request.fork is not None:
        return _fork_spec(parent, request, name)
    try:
        settings, kind = apply_definition(attrs.evolve(parent.settings, agent=request.definition), project)
        model = known_models().get(request.model or (kind.model if kind else None) or parent.model)
    except ConfigInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    return SpawnSpec(
        name=name,
        task=request.task,
        model=model.id,
        settings=settings,
        parent=parent.name,
        definition=request.definition,
        is_bare=parent.is_bare,
        stays=request.stays,
        subtree=None if request.budget_usd is None else BudgetLimits(dollars=request.budget_usd),
        is_shared=(request.process or (kind.process if kind else "own")) == "shared",
        isolation=request.isolation or (kind.isolation if kind else None),
        plan=_resolve_plan(request.plan, settings),
        memory=request.memory,
        directory=parent.directory,
        above=(parent.settings, *parent.above),
        request=request,
    )


def read_only_spec(order: SpawnSpec) -> SpawnSpec:
    """*order* of one who may only read, for whom it starts: they may do no more."""
    permissions = attrs.evolve(order.settings.permissions, mode="plan")
    return attrs.evolve(order, settings=attrs.evolve(order.settings, permissions=permissions))


def _resolve_plan(plan: PlanPolicy | None, settings: Settings) -> PlanPolicy | None:
    return plan if plan is None or plan.by is not None else attrs.evolve(plan, by=settings.approvals.plans)


def _fork_spec(parent: SpawnSpec, request: SpawnRequest, name: str) -> SpawnSpec:
    """As its parent, whose kind limits the parent alone: a fork of a coordinator works. Its process is its own."""
    return attrs.evolve(
        parent,
        name=name,
        task=request.task,
        parent=parent.name,
        definition=None,
        own=None,
        subtree=None,
        fork=request.fork,
        stays=False,
        is_shared=False,
        isolation=request.isolation,
        plan=None,
        team=(),
        worktree=None,
        above=(parent.settings, *parent.above),
        request=request,
        report=None,
        is_taken_up=False,
    )
