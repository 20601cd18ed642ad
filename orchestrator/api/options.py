"""Options of `open_session`, and their conversion to the request with which a root (supervisor process) is started."""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict, cast

from coterie.agents.loop.model.catalog import has_model_key, known_models
from coterie.agents.settings import Mode, Settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.control.launch_client import PromptHandler
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.settings.settings_loader import COMMAND_LINE, apply_definition, load_settings
from coterie.orchestrator.teams.team_file import load_team
from coterie.session_directory import COORDINATOR, SessionDirectory
from coterie.suggestions import did_you_mean

SOURCE = "open_session"
"""First part of error lines about invalid options, as in `open_session: max_turns is 0`."""
NEW_SESSION_OPTIONS = ("project", "team", "coordinator", "agent", "model")
"""Options that are refused when a session is resumed, because the session has stored their values."""


class SessionOptions(TypedDict, total=False):
    """Keyword options of `open_session`; for a setting that is missing or None, the settings files give the value."""

    project: str | os.PathLike[str] | None
    """Directory in which the agents work; None for the current directory."""
    session: str | None
    """Id, or beginning of the id, of a session to resume; the task is then the next user message and may be empty."""
    team: str | os.PathLike[str] | None
    """TOML file of a team, whose members are started together with the lead (first agent)."""
    coordinator: bool | None
    """True for a lead (first agent) that delegates all work to other agents."""
    agent: str | None
    """Agent type of the lead (first agent), such as `explore`."""
    model: str | None
    """Id or alias of the model of the lead (first agent), such as `sonnet`."""
    script: str | os.PathLike[str] | None
    """Script file with the replies that replace the model, so that no API key is needed (docs/scripts.md)."""
    permission_mode: Mode | None
    max_turns: int | None
    max_budget_usd: Decimal | float | None
    """Maximum cost in dollars of all agents of the session together."""
    settings: Mapping[str, object] | None
    """Settings without an option here, by dotted key, such as `permissions.mode`; they override the settings files."""
    bare: bool | None
    """True to run without instruction files, memories, skills, hooks and MCP servers."""
    on_question: PromptHandler | None
    """Async function that answers permission prompts, one at a time; None denies them, unless `questions_wait`."""
    questions_wait: bool | None
    """True to store permission prompts as approvals, which wait for `LiveSession.decide` or `coterie approvals`."""
    detached: bool | None
    """True to keep the session running after the `open_session` block; implies `questions_wait`."""


def explicit_options(options: SessionOptions) -> SessionOptions:
    """Return *options* without the options whose value is None. Raises `TypeError` for an unknown option name."""
    for name in options:
        if name not in SessionOptions.__annotations__:
            hint = did_you_mean(name, SessionOptions.__annotations__)
            raise TypeError(f"{SOURCE} has no option {name!r}; {hint}")
    return cast("SessionOptions", {name: value for name, value in options.items() if value is not None})


def to_session_request(task: str, options: SessionOptions) -> SessionRequest:
    """Build the request that starts a root (supervisor process) for *task*; *options* come from `explicit_options`.

    Reads settings and team files. Raises `ConfigInvalid` for an invalid option or file, no API key, or no task.
    """
    waits = options.get("questions_wait", False) or options.get("detached", False)
    if "on_question" in options and waits:
        raise ConfigInvalid("on_question", "cannot be combined with questions_wait or detached; pass only one of them")
    if (script := options.get("script")) is None and not has_model_key():
        raise ConfigInvalid("model", "no API key; set ANTHROPIC_API_KEY, or pass script= to use a scripted model")
    settings, facts = _resumed_session(options) if "session" in options else _new_session(options)
    if "session" not in options:
        _, definition = apply_definition(settings, facts["project"])
        task = task.strip() or (definition and definition.initial_prompt) or ""
        if not task:
            raise ConfigInvalid("task", "the task is empty; pass a task, or session= with a session id to resume")
    return SessionRequest.prepare(
        settings,
        facts.pop("project"),
        None if script is None else Path(script).resolve(),
        task=task.strip(),
        is_bare=bool(options.get("bare")),
        can_ask="on_question" in options,
        asks_later=bool(waits),
        **facts,
    )


def _new_session(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """Return the settings and the other request fields, project and team, of a new session. Raises `ConfigInvalid`."""
    project = Path(options.get("project") or ".").resolve()
    if not project.is_dir():
        raise ConfigInvalid("project", f"{project} is not a directory; pass the directory in which the agents work")
    agent, model, team = options.get("agent"), options.get("model"), None
    if options.get("coordinator"):
        if agent not in (None, COORDINATOR):
            raise ConfigInvalid("coordinator", f"cannot be combined with agent={agent!r}; pass one of them")
        agent = COORDINATOR
    if (path := options.get("team")) is not None:
        team = load_team(Path(path), project)
        if agent is not None and team.lead_type not in (None, agent):
            raise ConfigInvalid("team", f"the lead of {path} has type {team.lead_type}, not {agent!r}; omit agent=")
        agent, model = team.lead_type or agent, model or team.lead_model
    return _settings(project, options, model, agent), {"project": project, "team": team}


def _resumed_session(options: SessionOptions) -> tuple[Settings, dict[str, Any]]:
    """Return the settings and the other request fields, project and id, to resume a session. Raises `ConfigInvalid`."""
    for name in NEW_SESSION_OPTIONS:
        if options.get(name):
            raise ConfigInvalid(name, "the option is only for new sessions; a resumed session keeps its value; omit it")
    found = SessionDirectory.find(options.get("session") or "")
    recorded = {"sandbox.mode": found.sandbox, **(options.get("settings") or {})}
    settings = _settings(found.project, {**options, "settings": recorded}, found.model, found.agent)
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
