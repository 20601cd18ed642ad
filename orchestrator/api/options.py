"""Options of `open_session`, checked and turned into a session request before anything starts."""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict, cast

from coterie.agents.definitions.team_definition import TeamDefinition
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.settings import Mode, Settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.control.launch_client import PromptHandler
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.settings.setting_sources import COMMAND_LINE
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings
from coterie.orchestrator.teams.team_file import load_team
from coterie.session_directory import COORDINATOR, SessionDirectory
from coterie.suggestions import did_you_mean

API_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
SOURCE = "open_session"
"""Where an option stands, in errors."""
NEW_SESSION_OPTIONS = ("project", "team", "coordinator", "agent", "model")
"""What only a new session can be given: one that is opened again knows it."""


class SessionOptions(TypedDict, total=False):
    """How a session is run. What is not given, or None, is what the settings say, as for `coterie run`."""

    project: str | os.PathLike[str] | None
    """The directory that its agents work in; None for the current one."""
    session: str | None
    """The id, or its beginning, of a session to take up again; the task is then what to say next, and may be empty."""
    team: str | os.PathLike[str] | None
    """The TOML file of a team that the lead has from the beginning."""
    coordinator: bool | None
    """Whether the lead only delegates."""
    agent: str | None
    """The kind of agent that leads."""
    model: str | None
    """An id or alias."""
    script: str | os.PathLike[str] | None
    """Play the model from this file, without a key."""
    permission_mode: Mode | None
    max_turns: int | None
    max_budget_usd: Decimal | float | None
    """Dollars at most, for all agents together."""
    settings: Mapping[str, object] | None
    """Any other settings, by their dotted keys."""
    bare: bool | None
    """Whether to read no instruction files, and remember nothing."""
    on_question: PromptHandler | None
    """Asked for permissions, one question at a time; without it they are refused, unless `questions_wait`."""
    questions_wait: bool | None
    """Whether questions for permission become approvals, and wait until somebody decides."""
    detached: bool | None
    """Whether it goes on when the block ends; its questions wait."""


def explicit_options(options: SessionOptions) -> SessionOptions:
    """*options* without those that are None. Raises `TypeError` for one that there is not."""
    for name in options:
        if name not in SessionOptions.__annotations__:
            hint = did_you_mean(name, SessionOptions.__annotations__)
            raise TypeError(f"{SOURCE} has no option {name!r}; {hint}")
    return cast("SessionOptions", {name: value for name, value in options.items() if value is not None})


def to_session_request(task: str, options: SessionOptions) -> SessionRequest:
    """What a root is to be started with, from options that `explicit_options` returned.

    Blocks on the disk. Raises `ConfigInvalid`: nothing was started then.
    """
    waits = options.get("questions_wait", False) or options.get("detached", False)
    if "on_question" in options and waits:
        raise ConfigInvalid("on_question", "questions cannot be asked at once and wait: leave it out, or the other")
    if (script := options.get("script")) is None and not any(os.environ.get(name) for name in API_KEY_VARIABLES):
        raise ConfigInvalid("model", "there is none to ask: set ANTHROPIC_API_KEY, or give script= to play one")
    settings, facts = _resumed_session(options) if "session" in options else _new_session(options)
    settings, kind = apply_definition(settings, facts["project"])
    if "session" not in options:
        task = task.strip() or (kind and kind.initial_prompt) or ""
        if not task:
            raise ConfigInvalid("task", "it is empty; say what is to be done, or give session= to take one up again")
    return SessionRequest(
        task=task.strip(),
        model=known_models().get(settings.model).id,
        settings=settings,
        definition=None if kind is None else kind.name,
        script=None if script is None else str(Path(script).resolve()),
        is_bare=bool(options.get("bare")),
        can_ask="on_question" in options,
        asks_later=bool(waits),
        **facts,
    )


def _new_session(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """The settings and the facts of a new session."""
    project = Path(options.get("project") or ".").resolve()
    if not project.is_dir():
        raise ConfigInvalid("project", f"{project} is not a directory")
    agent, model, team = _lead_definition(options), options.get("model"), None
    if (path := options.get("team")) is not None:
        team = load_team(Path(path), project)
        agent = _lead_type(team, agent, Path(path))
        model = model or team.lead_model
    return _settings(project, options, model, agent), {"project": project, "team": team}


def _lead_definition(options: SessionOptions) -> str | None:
    agent = options.get("agent")
    if not options.get("coordinator"):
        return agent
    if agent not in (None, COORDINATOR):
        raise ConfigInvalid(
            "coordinator", f"that is the kind {COORDINATOR}, and agent= wants {agent}: give one of them"
        )
    return COORDINATOR


def _lead_type(team: TeamDefinition, agent: str | None, path: Path) -> str | None:
    if agent is not None and team.lead_type not in (None, agent):
        raise ConfigInvalid(
            "team", f"the lead of {path} is a {team.lead_type}, and a {agent} is wanted: give one of them"
        )
    return team.lead_type or agent


def _resumed_session(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """The settings and the facts of a session that is taken up again: it goes on where it stopped, or with a task."""
    for name in NEW_SESSION_OPTIONS:
        if options.get(name):
            raise ConfigInvalid(name, "only a new session takes it; one that is opened again knows its own")
    found = SessionDirectory.find(options.get("session") or "")
    held = {"sandbox.mode": found.sandbox, **(options.get("settings") or {})}
    settings = _settings(found.project, {**options, "settings": held}, found.model, found.agent)
    return settings, {"project": found.project, "session": found.id}


def _settings(project: Path, options: SessionOptions, model: str | None, agent: str | None) -> Settings:
    flags = {
        **(options.get("settings") or {}),
        "model": model,
        "agent": agent,
        "max_turns": options.get("max_turns"),
        "max_budget_usd": options.get("max_budget_usd"),
        "permissions.mode": options.get("permission_mode"),
    }
    try:
        settings = load_settings(project, flags, os.environ)
        known_models().get(settings.model)
    except ConfigInvalid as exc:
        if exc.source != COMMAND_LINE:
            raise
        raise ConfigInvalid(SOURCE, exc.reason) from exc
    return settings
