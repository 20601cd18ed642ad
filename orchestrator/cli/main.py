"""The `coterie` program: a table of commands, each imported only when it is used.

`coterie --help` must not import the SDK, which takes two seconds. So the table holds the summary of every command and
the dotted name of its code, which may be in `scenarios/`: no module of `orchestrator/` may import that package.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import attrs
import click

from coterie import __version__
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, open_output
from coterie.suggestions import closest_match


@attrs.frozen
class CommandEntry:
    """Location of a command's code, and its summary in `coterie --help`."""

    target: str
    """Path of the click command's code, as `module:attribute`."""
    summary: str


_HERE = "coterie.orchestrator.cli"
COMMANDS = {
    "run": CommandEntry(f"{_HERE}.commands.run:run", "Give a task to an agent or a team."),
    "resume": CommandEntry(f"{_HERE}.commands.run:resume", "Continue a session that is not running."),
    "demo": CommandEntry("coterie.scenarios.demo.command:command", "Show Coterie at work, without an API key."),
    "scenario": CommandEntry("coterie.scenarios.command:scenario", "Run tests of agents with scripted model replies."),
    "serve": CommandEntry(
        "coterie.scenarios.api_server.command:serve", "Run a local API server with scripted replies."
    ),
    "agents": CommandEntry(f"{_HERE}.commands.agents:agents", "List and check agent types."),
    "skills": CommandEntry(f"{_HERE}.commands.skills:skills", "List, show and check skills."),
    "team": CommandEntry(f"{_HERE}.commands.team:team", "Check a team file."),
    "list": CommandEntry(f"{_HERE}.commands.sessions:list_sessions", "List sessions and their states."),
    "attach": CommandEntry(f"{_HERE}.commands.attach:attach", "Watch a running session, and answer its requests."),
    "stop": CommandEntry(f"{_HERE}.commands.stop:stop", "Stop a running session, or one of its agents."),
    "background": CommandEntry(f"{_HERE}.commands.stop:background", "Move a running agent to the background."),
    "compact": CommandEntry(f"{_HERE}.commands.compact:compact", "Summarise a part of an agent's conversation."),
    "logs": CommandEntry(f"{_HERE}.logs.command:logs", "Show the events of a session."),
    "costs": CommandEntry(f"{_HERE}.commands.costs:costs", "Show the costs of a session."),
    "report": CommandEntry(f"{_HERE}.commands.report:report", "Write an HTML report about a session."),
    "mail": CommandEntry(f"{_HERE}.mail:mail", "Send messages to agents, and show their mail."),
    "tasks": CommandEntry(f"{_HERE}.commands.tasks:tasks", "Show and change the task list of a session."),
    "approvals": CommandEntry(
        f"{_HERE}.commands.approvals:approvals", "List and answer agents' requests for approval."
    ),
    "hooks": CommandEntry(f"{_HERE}.commands.hooks:hooks", "List and approve hooks."),
    "mcp": CommandEntry(f"{_HERE}.commands.mcp:mcp", "List, approve and test MCP servers."),
    "memory": CommandEntry(f"{_HERE}.memory:memory", "Show, check and change what agents remember."),
    "completion": CommandEntry(f"{_HERE}.completion_script:completion", "Print the completion script for a shell."),
    "doctor": CommandEntry(f"{_HERE}.commands.doctor:doctor", "Find and repair problems that crashed sessions left."),
}


class CommandTable(click.Group):
    """Click group that loads a command by name and writes its own help from the table alone."""

    table: ClassVar[Mapping[str, CommandEntry]] = COMMANDS

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, or print the shell completion that the variable `_COTERIE_COMPLETE` requests, and exit."""
        if instruction := os.environ.get("_COTERIE_COMPLETE"):
            from coterie.orchestrator.cli.completion_script import print_candidates  # noqa: PLC0415 - rarely needed

            sys.exit(0 if print_candidates(self, instruction) else ExitCode.USAGE)
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, in the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None for a name the table does not have."""
        del ctx
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* names. Raises `UsageError` for an unknown one, with a hint of valid names."""
        if args and not args[0].startswith("-") and args[0] not in self.table:
            near = closest_match(args[0], self.table, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(self.table)}."
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command with `open_output`; convert `ConfigInvalid` to `UsageRefused`; on Ctrl-C exit 130 silently."""
        try:
            with open_output():
                return super().invoke(ctx)
        except ConfigInvalid as exc:
            raise UsageRefused(str(exc)) from exc
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in `--help` without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coterie")
def main() -> None:
    """Run a team of Claude agents as operating-system processes."""
