"""What a program wants of a session, checked before anything starts, as the assignment of a root."""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict, cast

from coterie.agents.errors import ConfigInvalid
from coterie.agents.models import known_models
from coterie.agents.nearest import suggestion
from coterie.orchestrator.kinds import of_a_kind
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.hearing import OnQuestion
from coterie.orchestrator.session import COORDINATOR, Session
from coterie.orchestrator.settings import Settings, load_settings
from coterie.orchestrator.settings.schema import Mode
from coterie.orchestrator.settings.sources import COMMAND_LINE
from coterie.orchestrator.teams.reading import read_team
from coterie.orchestrator.teams.team import Team

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
HERE = "open_session"
"""Where an option stands, in errors."""
BEGINNING = ("project", "team", "coordinator", "agent", "model")
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
    on_question: OnQuestion | None
    """Asked for permissions, one question at a time; without it they are refused, unless `questions_wait`."""
    questions_wait: bool | None
    """Whether questions for permission become approvals, and wait until somebody decides."""
    detached: bool | None
    """Whether it goes on when the block ends; its questions wait."""


def given(options: SessionOptions) -> SessionOptions:
    """*options* without those that are None. Raises `TypeError` for one that there is not."""
    for name in options:
        if name not in SessionOptions.__annotations__:
            hint = suggestion(name, SessionOptions.__annotations__)
            raise TypeError(f"{HERE} has no option {name!r}; {hint}")
    return cast("SessionOptions", {name: value for name, value in options.items() if value is not None})


def assignment_of(task: str, options: SessionOptions) -> Assignment:
    """What a root is to be started with, of the options that are `given`.

    Blocks on the disk. Raises `ConfigInvalid`: nothing was started then.
    """
    waits = options.get("questions_wait", False) or options.get("detached", False)
    if "on_question" in options and waits:
        raise ConfigInvalid("on_question", "questions cannot be asked at once and wait: leave it out, or the other")
    if (script := options.get("script")) is None and not any(os.environ.get(name) for name in KEYS):
        raise ConfigInvalid("model", "there is none to ask: set ANTHROPIC_API_KEY, or give script= to play one")
    settings, facts = _resumed(options) if "session" in options else _begun(options)
    settings, kind = of_a_kind(settings, facts["project"])
    if "session" not in options:
        task = task.strip() or (kind and kind.initial_prompt) or ""
        if not task:
            raise ConfigInvalid("task", "it is empty; say what is to be done, or give session= to take one up again")
    return Assignment(
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


def _begun(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """The settings and the facts of a new session."""
    project = Path(options.get("project") or ".").resolve()
    if not project.is_dir():
        raise ConfigInvalid("project", f"{project} is not a directory")
    agent, model, team = _agent(options), options.get("model"), None
    if (path := options.get("team")) is not None:
        team = read_team(Path(path), project)
        agent = _kind_of_lead(team, agent, Path(path))
        model = model or team.lead_model
    return _settings(project, options, model, agent), {"project": project, "team": team}


def _agent(options: SessionOptions) -> str | None:
    agent = options.get("agent")
    if not options.get("coordinator"):
        return agent
    if agent not in (None, COORDINATOR):
        raise ConfigInvalid(
            "coordinator", f"that is the kind {COORDINATOR}, and agent= wants {agent}: give one of them"
        )
    return COORDINATOR


def _kind_of_lead(team: Team, agent: str | None, path: Path) -> str | None:
    if agent is not None and team.lead_kind not in (None, agent):
        raise ConfigInvalid(
            "team", f"the lead of {path} is a {team.lead_kind}, and a {agent} is wanted: give one of them"
        )
    return team.lead_kind or agent


def _resumed(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """The settings and the facts of a session that is taken up again: it goes on where it stopped, or with a task."""
    for name in BEGINNING:
        if options.get(name):
            raise ConfigInvalid(name, "only a new session takes it; one that is opened again knows its own")
    found = Session.find(options.get("session") or "")
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
        raise ConfigInvalid(HERE, exc.reason) from exc
    return settings
