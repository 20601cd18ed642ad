"""`coterie run` and `coterie resume`: run a task, or resume a session."""

import json
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs
import click

from coterie.agents.loop.model.catalog import known_models
from coterie.agents.settings import Mode, Settings
from coterie.orchestrator.cli.completion_candidates import (
    complete_agent_type,
    complete_session,
    complete_task,
)
from coterie.orchestrator.cli.shared_options import model_option, require_model, script_option
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings
from coterie.session_directory import COORDINATOR, SandboxMode, SessionDirectory


@attrs.frozen(kw_only=True)
class _Options:
    """Options that `coterie run` and `coterie resume` share."""

    only_result: bool
    output_format: str
    max_turns: int | None
    max_budget_usd: Decimal | None
    permission_mode: str | None
    sandbox: SandboxMode | None
    script: Path | None
    is_bare: bool
    is_detached: bool
    is_live: bool | None

    def __attrs_post_init__(self) -> None:
        if self.is_live and (self.only_result or self.output_format != "text" or self.is_detached):
            other = "--detach" if self.is_detached else "-p" if self.only_result else "--output-format"
            raise click.UsageError(f"--live and {other} cannot be used together; leave one of them out")

    def settings(self, project: Path, **flags: object) -> Settings:
        """Load the settings for *project*, overridden by these options and by *flags*. Raises `ConfigInvalid`."""
        given = {
            **flags,
            "max_turns": self.max_turns,
            "max_budget_usd": self.max_budget_usd,
            "permissions.mode": self.permission_mode,
            "sandbox.mode": self.sandbox,
        }
        return load_settings(project, given, os.environ)

    @property
    def can_ask(self) -> bool:
        """True if the user can be prompted: a terminal, text output, and neither `-p` nor `--detach`."""
        is_text = self.output_format == "text" and not self.only_result
        return is_text and not self.is_detached and sys.stdin.isatty() and sys.stderr.isatty()


class _Dollars(click.ParamType[Decimal]):
    name = "dollars"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        """Parse a positive number of dollars without rounding. Raises `BadParameter` for any other value."""
        try:
            amount = Decimal(value)
        except ArithmeticError:
            amount = Decimal(0)
        if not (amount.is_finite() and amount > 0):
            self.fail(f"{value!r} is not a positive amount; give dollars such as 2.50", param, ctx)
        return amount


def _shared_options(function: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("-p", "--print", "only_result", is_flag=True, help="Print only the final reply of the agent."),
        click.option(
            "--output-format",
            type=click.Choice(["text", "json", "stream-json"]),
            default="text",
            show_default=True,
            help="text: print the work as it goes on; json: print one JSON summary at the end; stream-json: print "
            "one JSON event per line, see docs/events.md. -p has an effect only with text.",
        ),
        click.option(
            "--max-turns",
            type=click.IntRange(1),
            help="End a run of an agent after this many model calls; of the first agent, exit with 1.  [default: 200]",
        ),
        click.option(
            "--max-budget-usd",
            type=_Dollars(),
            help="Spend at most this much on model calls of the session, resumes included. The session ends with exit "
            "code 3 before a call that could cost more.  [default: no limit; in `coterie resume`, as before]",
        ),
        click.option(
            "--permission-mode",
            type=click.Choice(get_args(Mode)),
            help="Choose which tool calls run without asking you. default: reading in the working directory; "
            "acceptEdits: also editing there; plan: reading only, and all else is denied; dontAsk: as default, but "
            "deny instead of asking; bypassPermissions: all. With --detach, other calls wait for `coterie approvals`; "
            "else they are denied with -p, JSON, or if standard input or error is no terminal.  [default: default]",
        ),
        click.option(
            "--sandbox",
            type=click.Choice(get_args(SandboxMode)),
            help="Limit the files and the network that shell commands of agents can reach; see docs/sandbox.md.  "
            "[default: none; in `coterie resume`, as before]",
        ),
        script_option("no Anthropic API key is needed"),
        click.option(
            "--detach",
            "is_detached",
            is_flag=True,
            help="Start the session in the background, print its id and return; watch it with `coterie attach`.",
        ),
        click.option(
            "--live/--no-live",
            "is_live",
            default=None,
            help="Show a table of all agents that is updated as they work, on a terminal; not with -p, JSON output or "
            "--detach. `q` leaves it: the session continues, and the command exits with 0.  [default: for a team or a "
            "coordinator, if the terminal has at least 60 columns and 15 rows]",
        ),
        click.option(
            "--bare", "is_bare", is_flag=True, help="Load no CLAUDE.md, skills, memories, hooks or MCP servers."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.argument("task", required=False, shell_complete=complete_task)
@model_option
@click.option(
    "--agent",
    shell_complete=complete_agent_type,
    help="Type of the first agent (prompt, tools, model), see `coterie agents list`. Not with --coordinator.",
)
@click.option(
    "--coordinator",
    "is_coordinator",
    is_flag=True,
    help="Make the first agent a coordinator: it does no work itself, but starts other agents for it.",
)
@click.option(
    "--team",
    "team_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Start the team that the TOML file FILE describes (docs/teams.md); TASK is for its first agent, the lead. "
    "--agent and --coordinator are only for a lead without a type in FILE.",
)
@_shared_options
def run(
    *,
    task: str | None,
    model: str | None,
    agent: str | None,
    is_coordinator: bool,
    team_file: Path | None,
    **shared: Any,
) -> None:
    """Give TASK to an agent that works in the current directory, and print the agent's work and result.

    Without TASK, or if it is `-`, the task is read from standard input, unless that is a terminal. If there is no text,
    the task is the `initialPrompt` of the agent type. The agent may start other agents. Settings can change the
    defaults of options; see docs/settings.md. Exits 0 if the task is done, 1 if the run failed, 2 if an option or
    setting is wrong or there is no task, 3 if the budget is spent, 5 if there is no API key or no model could be
    reached, 130 after Ctrl-C. With --detach, exits 0 when the session has started.
    """
    options = _Options(**shared)
    if is_coordinator and agent not in (None, COORDINATOR):
        raise click.UsageError(f"--coordinator cannot be used with --agent {agent}; leave one of them out")
    agent = COORDINATOR if is_coordinator else agent
    team = None
    if team_file is not None:
        from coterie.orchestrator.teams.team_file import load_team  # noqa: PLC0415 - most runs have no team file

        team = load_team(team_file, Path.cwd())
        if agent is not None and team.lead_type not in (None, agent):
            raise click.UsageError(f"the lead of {team_file} has type {team.lead_type}, not {agent}; leave --agent out")
        agent, model = team.lead_type or agent, model or team.lead_model
    settings = options.settings(Path.cwd(), model=model, agent=agent)
    known_models().get(settings.model)
    require_model(options.script)
    words = task
    if task in (None, "-"):
        words = "" if sys.stdin.isatty() else sys.stdin.read()
    if not words or not words.strip():
        _, definition = apply_definition(settings, Path.cwd())
        words = (definition and definition.initial_prompt) or ""
    if not words:
        raise click.UsageError('no task; give one as in: coterie run "find the bug in a.py", or on standard input')
    _start(options, settings, task=words.strip(), project=Path.cwd(), team=team)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("message", required=False)
@_shared_options
def resume(*, session: str, message: str | None, **shared: Any) -> None:
    """Continue SESSION, which is not running: finish interrupted work, or do what MESSAGE asks.

    SESSION is a session id from `coterie list`, or the first characters of it. Each agent keeps its conversation. A
    tool call that was interrupted is not repeated; the agent is told that it was interrupted.

    The session keeps its model and agent type, and its budget and sandbox unless --max-budget-usd or --sandbox is
    given. Every other option has the default shown below, or that of the settings. Without MESSAGE, a
    session that has completed its task is refused. Exits 0 if the work is done, 1 if the run failed, 2 if SESSION is
    refused or running or an option is wrong, 3 if the budget is spent, 5 if there is no API key or no model could be
    reached, 130 after Ctrl-C. With --detach, exits 0 when the session has started.
    """
    options = _Options(**shared)
    require_model(options.script)
    found = SessionDirectory.find(session)
    # Budget and sandbox of the session hold for all of its starts, unless an option changes them.
    budget, sandbox = options.max_budget_usd or found.budget_usd, options.sandbox or found.sandbox
    settings = attrs.evolve(options, max_budget_usd=budget, sandbox=sandbox).settings(
        found.project, model=found.model, agent=found.agent
    )
    _start(options, settings, task=(message or "").strip(), project=found.project, session=found.id)


def _start(options: _Options, settings: Settings, *, project: Path, **facts: Any) -> None:
    # Imported late: neither `--help` nor a usage error needs these.
    from coterie.orchestrator.cli.live.view_choice import choose_view, has_room_for_board, is_team  # noqa: PLC0415
    from coterie.orchestrator.cli.project_approvals import confirm_hooks, confirm_includes, confirm_servers  # noqa: PLC0415
    from coterie.orchestrator.cli.views.prompts import TerminalPrompter  # noqa: PLC0415
    from coterie.orchestrator.cli.views.session_client import detach, run_client  # noqa: PLC0415
    from coterie.orchestrator.session.session_request import SessionRequest  # noqa: PLC0415

    assignment = SessionRequest.prepare(settings, project, options.script, is_bare=options.is_bare, **facts)
    if options.can_ask and not options.is_bare:
        if assignment.session is None and assignment.settings.instructions.enabled:
            confirm_includes(project)
        confirm_hooks(project, assignment.settings)
        if assignment.session is None and assignment.settings.mcp.enabled:
            confirm_servers(project)
    if options.is_detached:
        started = detach(attrs.evolve(assignment, asks_later=True))
        if options.output_format != "text":
            click.echo(json.dumps({"session_id": started}))
        elif options.only_result:
            click.echo(started)
        else:
            hint = f"`coterie attach {started}` shows it, `coterie stop {started}` ends it"
            click.echo(f"session {started} has started; {hint}")
        return
    is_live = is_team(assignment) and has_room_for_board() if options.is_live is None else options.is_live
    view = choose_view(options.output_format, only_result=options.only_result, is_live=is_live)
    # A request answered on the board waits there for any later client, so it must not end when this one leaves.
    can_ask = options.can_ask and not view.shows_approvals
    assignment = attrs.evolve(assignment, can_ask=can_ask, asks_later=view.shows_approvals)
    run_client(assignment, view, TerminalPrompter(view) if can_ask else None)
