"""Completion candidates for shells: sessions, agents, agent types, skills, models."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem

from coterie.agents.loop.model.catalog import known_models
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.command_tree import cached_by_files
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.session.root_lock import find_root, has_dead_root
from coterie.session_directory import ROSTER_FILE, SessionDirectory, list_session_ids

if TYPE_CHECKING:
    from coterie.agents.skills.skill import Skill


SHOWN = 60
"""Characters that are shown beside a name."""
EXPLAINED = 50
"""Sessions that something is said about; more would take time, and nobody reads so far down."""


def complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of sessions, the newest first, with how they stand and what they are about."""
    names = [name for name in reversed(list_session_ids()) if name.startswith(incomplete)]
    explained = [CompletionItem(name, help=_about(name)) for name in names[:EXPLAINED]]
    return [*explained, *(CompletionItem(name) for name in names[EXPLAINED:])]


def complete_running_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The agents at work in the session that was named before, or in the newest one here."""
    at_work = ((name, state) for name, state in _members(ctx) if state != "ended")
    return [CompletionItem(name, help=state) for name, state in at_work if name.startswith(incomplete)]


def complete_recipient(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """All who are on the roster of that session."""
    return [CompletionItem(name, help=state) for name, state in _members(ctx) if name.startswith(incomplete)]


def complete_agent_type(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kinds of agents that this directory knows."""
    here = hashlib.blake2b(os.fsencode(Path.cwd()), digest_size=8).hexdigest()
    kinds: dict[str, str] = cached_by_files(f"kinds-{here}", _agent_types)
    return [CompletionItem(name, help=about) for name, about in kinds.items() if name.startswith(incomplete)]


def complete_skill(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The skills that this directory knows."""
    return [CompletionItem(skill.name, help=one_line(skill.description, SHOWN)) for skill in _skills(incomplete)]


def complete_task(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The skills that a task can start; for other words a shell has nothing to offer."""
    found = _skills(incomplete[1:]) if incomplete.startswith("/") else ()
    offered = [skill for skill in found if skill.is_for_user]
    return [CompletionItem(f"/{skill.name}", help=one_line(skill.description, SHOWN)) for skill in offered]


def _skills(incomplete: str) -> "list[Skill]":
    from coterie.agents.skills.store import load_skills  # noqa: PLC0415 - slow to import

    found = load_skills(Path.cwd()).by_name.values()
    return [skill for skill in found if skill.name.startswith(incomplete)]


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Aliases and ids of models."""
    table = known_models()
    return [CompletionItem(name) for name in (*table.aliases, *table.models) if name.startswith(incomplete)]


def _about(name: str) -> str | None:
    """What is known without reading what has happened in the session."""
    try:
        session = SessionDirectory.find(name)
        state = "running" if find_root(session) else "interrupted" if has_dead_root(session) else "ended"
    except (ConfigInvalid, OSError):
        return None
    return one_line(f"{state}: {session.task}", SHOWN)


def _members(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Names and states, from the file of the roster alone: what can change a roster takes long to import."""
    try:
        named = ctx.params.get("session")
        session = SessionDirectory.find(named) if named else SessionDirectory.newest(Path.cwd())
        roster = msgspec.json.decode((session.directory / ROSTER_FILE).read_bytes(), type=dict[str, Any])
        yield from [(str(name), str(member["state"])) for name, member in roster["members"].items()]
    except (ConfigInvalid, OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # there is nothing to offer, and a Tab is no place to say why


def _agent_types() -> tuple[dict[str, str], Iterable[Path]]:
    """Each kind with what it is for, and where that was read."""
    from coterie.agents.definitions.store import definition_directories, load_definitions  # noqa: PLC0415 - slow to import

    kinds = load_definitions(Path.cwd()).by_name.values()
    places = [place for directory in definition_directories(Path.cwd()) for place in (directory, *directory.rglob("*"))]
    return {kind.name: one_line(kind.description, SHOWN) for kind in kinds}, places
