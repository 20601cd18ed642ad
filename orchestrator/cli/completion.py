"""What a shell offers when a user presses Tab: sessions, kinds of agents, models."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from coterie.agents.errors import ConfigInvalid
from coterie.agents.models import known_models
from coterie.orchestrator.session import Session, session_names

if TYPE_CHECKING:
    from coterie.agents.skills import Skill


def complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of sessions, the newest first."""
    return [CompletionItem(name) for name in reversed(session_names()) if name.startswith(incomplete)]


def complete_member(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The agents of the session that was named before."""
    from coterie.orchestrator.overview import members_of  # noqa: PLC0415 - needs more than `--help` should wait for

    try:
        members = members_of(Session.find(ctx.params.get("session") or ""))
    except ConfigInvalid:
        return []
    at_work = (name for name, member in members.items() if member.state != "ended")
    return [CompletionItem(name) for name in at_work if name.startswith(incomplete)]


def complete_agent(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kinds of agents that this directory knows."""
    from coterie.agents.definitions import load_definitions  # noqa: PLC0415 - brings trio along, for this alone

    kinds = load_definitions(Path.cwd()).by_name.values()
    return [CompletionItem(kind.name, help=kind.description) for kind in kinds if kind.name.startswith(incomplete)]


def complete_skill(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The skills that this directory knows."""
    return [CompletionItem(skill.name, help=skill.description) for skill in _skills(incomplete)]


def complete_task(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The skills that a task can start; for other words a shell has nothing to offer."""
    found = _skills(incomplete[1:]) if incomplete.startswith("/") else ()
    return [CompletionItem(f"/{skill.name}", help=skill.description) for skill in found if skill.is_for_user]


def _skills(incomplete: str) -> "list[Skill]":
    from coterie.agents.skills import load_skills  # noqa: PLC0415 - brings trio along, for this alone

    found = load_skills(Path.cwd()).by_name.values()
    return [skill for skill in found if skill.name.startswith(incomplete)]


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Aliases and ids of models."""
    table = known_models()
    return [CompletionItem(name) for name in (*table.aliases, *table.models) if name.startswith(incomplete)]
