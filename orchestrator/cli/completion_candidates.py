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
    from coterie.agents.skills.store import Skill


SHOWN = 60
"""Characters of a description shown next to a name."""
EXPLAINED = 50
"""Sessions that are offered with a description; reading more would make completion slow."""


def complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer session ids, the newest first, with the state and task of each."""
    names = [name for name in reversed(list_session_ids()) if name.startswith(incomplete)]
    explained = [CompletionItem(name, help=_about(name)) for name in names[:EXPLAINED]]
    return [*explained, *(CompletionItem(name) for name in names[EXPLAINED:])]


def complete_running_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the agents that have not ended, of the session named before or of the newest one of this directory."""
    running = ((name, state) for name, state in _members(ctx) if state != "ended")
    return [CompletionItem(name, help=state) for name, state in running if name.startswith(incomplete)]


def complete_recipient(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer all agents of that session."""
    return [CompletionItem(name, help=state) for name, state in _members(ctx) if name.startswith(incomplete)]


def complete_agent_type(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the agent types that this directory knows."""
    here = hashlib.blake2b(os.fsencode(Path.cwd()), digest_size=8).hexdigest()
    descriptions: dict[str, str] = cached_by_files(f"agent-types-{here}", _agent_types)
    return [CompletionItem(name, help=about) for name, about in descriptions.items() if name.startswith(incomplete)]


def complete_skill(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the skills that this directory knows."""
    return [CompletionItem(skill.name, help=one_line(skill.description, SHOWN)) for skill in _skills(incomplete)]


def complete_task(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the skills that the user can start as a task; any other task is free text."""
    found = _skills(incomplete[1:]) if incomplete.startswith("/") else ()
    offered = [skill for skill in found if skill.is_for_user]
    return [CompletionItem(f"/{skill.name}", help=one_line(skill.description, SHOWN)) for skill in offered]


def _skills(incomplete: str) -> "list[Skill]":
    from coterie.agents.skills.store import load_skills  # noqa: PLC0415 - slow to import

    found = load_skills(Path.cwd()).by_name.values()
    return [skill for skill in found if skill.name.startswith(incomplete)]


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer aliases and ids of models."""
    table = known_models()
    return [CompletionItem(name) for name in (*table.aliases, *table.models) if name.startswith(incomplete)]


def _about(name: str) -> str | None:
    """State and task of a session, from its small files; its logs are not read."""
    try:
        session = SessionDirectory.find(name)
        state = "running" if find_root(session) else "interrupted" if has_dead_root(session) else "ended"
    except (ConfigInvalid, OSError):
        return None
    return one_line(f"{state}: {session.task}", SHOWN)


def _members(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Names and states of agents from the roster file; the modules that change a roster are slow to import."""
    try:
        named = ctx.params.get("session")
        session = SessionDirectory.find(named) if named else SessionDirectory.newest(Path.cwd())
        roster = msgspec.json.decode((session.directory / ROSTER_FILE).read_bytes(), type=dict[str, Any])
        yield from [(str(name), str(member["state"])) for name, member in roster["members"].items()]
    except (ConfigInvalid, OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # nothing to offer: completion prints no errors


def _agent_types() -> tuple[dict[str, str], Iterable[Path]]:
    """Agent types with their descriptions, and the files and directories they were read from."""
    from coterie.agents.definitions.store import definition_directories, load_definitions  # noqa: PLC0415 - slow to import

    definitions = load_definitions(Path.cwd()).by_name.values()
    places = [place for directory in definition_directories(Path.cwd()) for place in (directory, *directory.rglob("*"))]
    return {each.name: one_line(each.description, SHOWN) for each in definitions}, places
