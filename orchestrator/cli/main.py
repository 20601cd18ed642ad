"""The `coterie` program: a table of commands, each imported only when it is used.

`coterie --help` must answer at once and be free of the SDK's two seconds of import, so the table holds every
command's summary and the dotted name of its code. That name may point upwards, to `scenarios/`, without this
module importing it.
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
from coterie.orchestrator.cli.output import ExitCode, UsageRefused
from coterie.suggestions import closest_match


@attrs.frozen
class CommandEntry:
    """Where a command lives, and what `--help` says of it."""

    target: str
    """`module:attribute` of a click command."""
    summary: str


COMMANDS = {
    "run": CommandEntry("coterie.orchestrator.cli.commands.run:run", "Run a task with one agent."),
    "resume": CommandEntry("coterie.orchestrator.cli.commands.run:resume", "Take a session up where it stopped."),
    "demo": CommandEntry(
        "coterie.scenarios.demo.command:command", "Show an agent at work, five forks, their bill, and a team."
    ),
    "scenario": CommandEntry("coterie.scenarios.command:scenario", "Play scripted teams, and judge them."),
    "serve": CommandEntry("coterie.scenarios.api_server.command:serve", "Run the embedded Messages API server."),
    "agents": CommandEntry("coterie.orchestrator.cli.commands.agents:agents", "List and check agent definitions."),
    "skills": CommandEntry("coterie.orchestrator.cli.commands.skills:skills", "List, show and check skills."),
    "team": CommandEntry("coterie.orchestrator.cli.commands.team:team", "Check the file of a team."),
    "list": CommandEntry(
        "coterie.orchestrator.cli.commands.sessions:list_sessions", "List sessions, and how they stand."
    ),
    "attach": CommandEntry(
        "coterie.orchestrator.cli.commands.attach:attach", "Look at a session while it runs, and answer it."
    ),
    "stop": CommandEntry(
        "coterie.orchestrator.cli.commands.stop:stop", "Stop a running session, or one of its agents."
    ),
    "background": CommandEntry(
        "coterie.orchestrator.cli.commands.stop:background", "Let nobody wait for an agent that works."
    ),
    "compact": CommandEntry(
        "coterie.orchestrator.cli.commands.compact:compact", "Compact the conversation of an agent."
    ),
    "logs": CommandEntry("coterie.orchestrator.cli.logs.command:logs", "Show what happened in a session."),
    "costs": CommandEntry("coterie.orchestrator.cli.commands.costs:costs", "Show what a session has cost, and why."),
    "report": CommandEntry(
        "coterie.orchestrator.cli.commands.report:report", "Make a page about a session, for a browser."
    ),
    "mail": CommandEntry(
        "coterie.orchestrator.cli.mail:mail", "Send mail to the agents of a session, and look at theirs."
    ),
    "tasks": CommandEntry(
        "coterie.orchestrator.cli.commands.tasks:tasks", "Show and change the task list of a session."
    ),
    "approvals": CommandEntry(
        "coterie.orchestrator.cli.commands.approvals:approvals", "Show what agents wait for your yes to, and answer."
    ),
    "hooks": CommandEntry(
        "coterie.orchestrator.cli.commands.hooks:hooks", "Show and approve commands that run at events."
    ),
    "mcp": CommandEntry("coterie.orchestrator.cli.commands.mcp:mcp", "List, approve and test MCP servers."),
    "memory": CommandEntry(
        "coterie.orchestrator.cli.memory:memory", "Look at what agents remember, check it, undo it."
    ),
    "completion": CommandEntry(
        "coterie.orchestrator.cli.completion_script:completion", "Print the script by which a shell completes names."
    ),
    "doctor": CommandEntry(
        "coterie.orchestrator.cli.commands.doctor:doctor", "Find what crashes have left behind, and mend it."
    ),
}


class CommandTable(click.Group):
    """A group whose commands are loaded by name; its help is written from the table alone."""

    table: ClassVar[Mapping[str, CommandEntry]] = COMMANDS

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, or answer a shell that wants to complete its command line."""
        if instruction := os.environ.get("_COTERIE_COMPLETE"):
            from coterie.orchestrator.cli.completion_script import print_candidates  # noqa: PLC0415 - seldom asked

            sys.exit(0 if print_candidates(self, instruction) else ExitCode.USAGE)
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
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
        """Find the command that *args* name; a misspelt one is refused with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in self.table:
            near = closest_match(args[0], self.table, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.table)}."
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; configuration that cannot be used is one line, and Ctrl-C none, whichever met it."""
        try:
            return super().invoke(ctx)
        except ConfigInvalid as exc:
            raise UsageRefused(str(exc)) from exc
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.table.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coterie")
def main() -> None:
    """Run a team of Claude agents as operating-system processes."""
