"""Spawning of an agent: its name, and its run with definition, model and limits, resolved from a spawn request."""

import itertools
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.spawn_request import SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace
from coterie.agents.settings import Settings
from coterie.errors import ConfigInvalid
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Member
from coterie.mailbox.envelope import new_message_id
from coterie.mailbox.errors import NameInvalid
from coterie.orchestrator.gateway.budgets import BudgetLimits
from coterie.orchestrator.settings.settings_loader import apply_definition
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.session_directory import MAIN

MAX_DEPTH = 3
"""An agent that far below the lead starts none itself."""


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


def resolve_run(request: SpawnRequest, name: str, parent: AgentSpec, project: Path) -> AgentRun:
    """Resolve *request* of *parent* to the run of an agent with *name*, kept for further messages.

    Blocks on the disk. Raises `SpawnRefused`.
    """
    if parent.depth >= MAX_DEPTH:
        raise SpawnRefused(f"An agent {MAX_DEPTH} levels below the lead cannot start another; do it yourself.")
    if request.fork is not None:
        return _fork_run(parent, request, name)
    try:
        settings, kind = apply_definition(attrs.evolve(parent.settings, agent=request.definition), project)
        model = known_models().get(request.model or (kind.model if kind else None) or parent.model)
    except ConfigInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    spec = AgentSpec(
        name=name,
        task=request.task,
        model=model.id,
        settings=settings,
        parent=parent.name,
        parent_settings=(parent.settings, *parent.parent_settings),
        definition=request.definition,
        is_teammate=request.stays,
        plan=_resolve_plan(request.plan, settings),
        memory=request.memory,
        is_bare=parent.is_bare,
        workspace=AgentWorkspace(directory=parent.workspace.directory),
    )
    return AgentRun(
        spec=spec,
        subtree_limits=None if request.budget_usd is None else BudgetLimits(dollars=request.budget_usd),
        isolation=request.isolation or (kind.isolation if kind else None),
        is_in_process=(request.process or (kind.process if kind else "own")) == "shared",
        is_kept=True,
        request=request,
    )


def read_only_spec(spec: AgentSpec) -> AgentSpec:
    """The *spec* of a parent that may only read, for its children, which may do no more."""
    permissions = attrs.evolve(spec.settings.permissions, mode="plan")
    return attrs.evolve(spec, settings=attrs.evolve(spec.settings, permissions=permissions))


def _resolve_plan(plan: PlanPolicy | None, settings: Settings) -> PlanPolicy | None:
    return plan if plan is None or plan.by is not None else attrs.evolve(plan, by=settings.approvals.plans)


def _fork_run(parent: AgentSpec, request: SpawnRequest, name: str) -> AgentRun:
    """A fork is as its parent, without the definition, because a fork of a coordinator works itself."""
    spec = attrs.evolve(
        parent,
        name=name,
        task=request.task,
        parent=parent.name,
        parent_settings=(parent.settings, *parent.parent_settings),
        report=new_message_id(),
        definition=None,
        fork=request.fork,
        is_teammate=False,
        plan=None,
        workspace=AgentWorkspace(directory=parent.workspace.directory),
    )
    return AgentRun(spec=spec, isolation=request.isolation, is_kept=True, request=request)
