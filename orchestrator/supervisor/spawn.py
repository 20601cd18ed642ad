"""Spawning of an agent: its name, and its run with definition, model and limits, resolved from a spawn request."""

import itertools
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.root_link.spawn_request import SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace
from coterie.errors import ConfigInvalid
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Member
from coterie.mailbox.envelope import new_message_id
from coterie.mailbox.errors import NameInvalid
from coterie.orchestrator.settings.settings_loader import apply_definition
from coterie.orchestrator.supervisor.agent_run import AgentRun
from coterie.session_directory import MAIN

MAX_DEPTH = 3
"""Maximum depth below the lead; an agent at this depth cannot spawn."""


def choose_name(request: SpawnRequest, members: Mapping[str, Member], claimed: Collection[str]) -> str:
    """Return a name that no running or starting agent has. Raises `SpawnRefused` for a requested name in use."""
    if request.name is None:
        stem = re.sub(r"[^a-z0-9]+", "-", request.definition.casefold()).strip("-")[:40] or "agent"
        names = (f"{stem}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in members and name not in claimed)
    try:
        name = check_name(request.name)
    except NameInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    is_running = name in members and members[name].state != "ended"
    if name == MAIN or name in claimed or is_running:
        raise SpawnRefused(f"An agent {name} is already running; choose another name, or send a message to it.")
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
        settings, definition = apply_definition(attrs.evolve(parent.settings, agent=request.definition), project)
        model = known_models().get(request.model or (definition.model if definition else None) or parent.model)
    except ConfigInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    plan = request.plan
    if plan is not None and plan.by is None:
        plan = attrs.evolve(plan, by=settings.approvals.plans)
    spec = AgentSpec(
        name=name,
        task=request.task,
        model=model.id,
        settings=settings,
        parent=parent.name,
        parent_settings=(parent.settings, *parent.parent_settings),
        definition=request.definition,
        is_teammate=request.stays,
        plan=plan,
        memory=request.memory,
        is_bare=parent.is_bare,
        workspace=AgentWorkspace(directory=parent.workspace.directory),
    )
    return AgentRun(
        spec=spec,
        budget=request.budget_usd,
        isolation=request.isolation or (definition.isolation if definition else None),
        is_in_process=(request.process or (definition.process if definition else "own")) == "shared",
        is_kept=True,
        request=request,
    )


def _fork_run(parent: AgentSpec, request: SpawnRequest, name: str) -> AgentRun:
    """Return the run of a fork of *parent*: without its definition, because a fork of a coordinator works itself."""
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
