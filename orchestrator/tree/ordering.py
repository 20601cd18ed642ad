"""An agent that is wanted, and how a wish becomes one: its kind, its model, and what it may do at most."""

import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.agents.models import known_models
from coterie.agents.spawning import SpawnRefused, SpawnRequest
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Member
from coterie.mailbox.errors import NameInvalid
from coterie.orchestrator.gate import Limits
from coterie.orchestrator.kinds import of_a_kind
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.settings import Settings

DEEPEST = 3
"""An agent that far below the lead starts none itself."""


@attrs.frozen(kw_only=True)
class Order:
    """An agent that is wanted, and for what."""

    name: str
    task: str
    model: str
    settings: Settings
    parent: str | None = None
    """Who started it, and is told what came of it; None for the lead."""
    definition: str | None = None
    own: Limits | None = None
    """What it may spend itself; None for no limit of its own."""
    subtree: Limits | None = None
    """What it and all it starts may spend."""
    is_bare: bool = False
    fork: str | None = None
    """The file of the fork point it begins with."""
    stays: bool = False
    """Whether it waits for messages when the task is done."""
    is_kept: bool = False
    """Whether it is run again when a message comes for it later."""
    above: tuple[Settings, ...] = ()
    """Those of the agents above it, the nearest first."""

    @property
    def depth(self) -> int:
        """How far below the lead it is."""
        return len(self.above)


def order_for(request: SpawnRequest, parent: Order, members: Mapping[str, Member], project: Path) -> Order:
    """What *parent* wants, made ready to be started. Blocks on the disk. Raises `SpawnRefused`."""
    if parent.depth >= DEEPEST:
        raise SpawnRefused(f"An agent {DEEPEST} levels below the lead cannot start another; do it yourself.")
    if request.fork is not None:
        return _fork_of(parent, request, members)
    try:
        settings, kind = of_a_kind(attrs.evolve(parent.settings, agent=request.definition), project)
        model = known_models().get(request.model or (kind.model if kind else None) or parent.model)
    except ConfigInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    return Order(
        name=_name(request, members),
        task=request.task,
        model=model.id,
        settings=settings,
        parent=parent.name,
        definition=request.definition,
        is_bare=parent.is_bare,
        stays=request.stays,
        above=(parent.settings, *parent.above),
    )


def _fork_of(parent: Order, request: SpawnRequest, members: Mapping[str, Member]) -> Order:
    """As its parent, whose kind limits the parent alone: a fork of a coordinator works."""
    return attrs.evolve(
        parent,
        name=_name(request, members),
        task=request.task,
        parent=parent.name,
        definition=None,
        own=None,
        subtree=None,
        fork=request.fork,
        stays=False,
        above=(parent.settings, *parent.above),
    )


def _name(request: SpawnRequest, members: Mapping[str, Member]) -> str:
    if request.name is None:
        stem = re.sub(r"[^a-z0-9]+", "-", request.definition.casefold()).strip("-")[:40] or "agent"
        return next(name for number in range(1, 10**6) if (name := f"{stem}-{number}") not in members)
    try:
        name = check_name(request.name)
    except NameInvalid as exc:
        raise SpawnRefused(f"No agent was started: {exc}.") from exc
    if name == MAIN or (name in members and members[name].state != "ended"):
        raise SpawnRefused(f"There is a {name} at work already; choose another name, or write to it.")
    return name
