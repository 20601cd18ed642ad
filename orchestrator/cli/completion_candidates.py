"""Shell completion of arguments and options of `coterie`: session ids, agents, agent types, skills and models."""

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
"""Maximum number of characters of the description that the shell shows next to a completion."""
EXPLAINED = 50
"""Number of newest sessions whose completion has a description; reading more sessions would be slow."""


def complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the session ids that begin with *incomplete*, newest first; the newest ones with their state and task."""
    names = [name for name in reversed(list_session_ids()) if name.startswith(incomplete)]
    explained = [CompletionItem(name, help=_about(name)) for name in names[:EXPLAINED]]
    return [*explained, *(CompletionItem(name) for name in names[EXPLAINED:])]


def complete_running_agent(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agents that have not ended, of the session on the command line, else of this directory's newest."""
    running = ((name, state) for name, state in _members(ctx) if state != "ended")
    return [CompletionItem(name, help=state) for name, state in running if name.startswith(incomplete)]


def complete_recipient(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return all agents, also ended ones, of the session on the command line, else of this directory's newest."""
    return [CompletionItem(name, help=state) for name, state in _members(ctx) if name.startswith(incomplete)]


def complete_agent_type(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the agent types that can be used in the current directory, each with its description; cached in a file."""
    here = hashlib.blake2b(os.fsencode(Path.cwd()), digest_size=8).hexdigest()
    descriptions: dict[str, str] = cached_by_files(f"agent-types-{here}", _agent_types)
    return [CompletionItem(name, help=about) for name, about in descriptions.items() if name.startswith(incomplete)]


def complete_skill(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of the skills that can be used in the current directory, each with its description."""
    return [CompletionItem(skill.name, help=one_line(skill.description, SHOWN)) for skill in _skills(incomplete)]


def complete_task(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the skills that the user can start as a task, such as `/review`; empty if *incomplete* lacks the `/`."""
    found = _skills(incomplete[1:]) if incomplete.startswith("/") else ()
    offered = [skill for skill in found if skill.is_for_user]
    return [CompletionItem(f"/{skill.name}", help=one_line(skill.description, SHOWN)) for skill in offered]


def _skills(incomplete: str) -> "list[Skill]":
    from coterie.agents.skills.store import load_skills  # noqa: PLC0415 - slow to import

    found = load_skills(Path.cwd()).by_name.values()
    return [skill for skill in found if skill.name.startswith(incomplete)]


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the aliases and ids of all models in the model table that begin with *incomplete*."""
    table = known_models()
    return [CompletionItem(name) for name in (*table.aliases, *table.models) if name.startswith(incomplete)]


def _about(name: str) -> str | None:
    """Return state and task of the session with id *name* as one short line; None if its files cannot be read."""
    try:
        session = SessionDirectory.find(name)
        state = "running" if find_root(session) else "interrupted" if has_dead_root(session) else "ended"
    except (ConfigInvalid, OSError):
        return None
    return one_line(f"{state}: {session.task}", SHOWN)


def _members(ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield name and state of each agent of the session that *ctx* names, else of the newest here; none on error."""
    try:
        named = ctx.params.get("session")
        session = SessionDirectory.find(named) if named else SessionDirectory.newest(Path.cwd())
        roster = msgspec.json.decode((session.directory / ROSTER_FILE).read_bytes(), type=dict[str, Any])
        yield from [(str(name), str(member["state"])) for name, member in roster["members"].items()]
    except (ConfigInvalid, OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # nothing to offer: completion prints no errors


def _agent_types() -> tuple[dict[str, str], Iterable[Path]]:
    """Return the shortened description of each agent type by its name, and the files and directories read for it."""
    from coterie.agents.definitions.store import definition_directories, load_definitions  # noqa: PLC0415 - slow to import

    definitions = load_definitions(Path.cwd()).by_name.values()
    places = [place for directory in definition_directories(Path.cwd()) for place in (directory, *directory.rglob("*"))]
    return {each.name: one_line(each.description, SHOWN) for each in definitions}, places
