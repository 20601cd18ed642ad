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
from coterie.agents.errors import ConfigInvalid
from coterie.agents.nearest import nearest
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused


@attrs.frozen
class Entry:
    """Where a command lives, and what `--help` says of it."""

    target: str
    """`module:attribute` of a click command."""
    summary: str


COMMANDS = {
    "run": Entry("coterie.orchestrator.cli.run:run", "Run a task with one agent."),
    "resume": Entry("coterie.orchestrator.cli.run:resume", "Take a session up where it stopped."),
    "demo": Entry("coterie.scenarios.demo:command", "Show an agent at work, five forks, their bill, and a team."),
    "scenario": Entry("coterie.scenarios.runner.command:scenario", "Play scripted teams, and judge them."),
    "serve": Entry("coterie.scenarios.server.command:serve", "Run the embedded Messages API server."),
    "agents": Entry("coterie.orchestrator.cli.agents:agents", "List and check agent definitions."),
    "skills": Entry("coterie.orchestrator.cli.skills:skills", "List, show and check skills."),
    "team": Entry("coterie.orchestrator.cli.team:team", "Check the file of a team."),
    "list": Entry("coterie.orchestrator.cli.sessions:list_sessions", "List sessions, and how they stand."),
    "attach": Entry("coterie.orchestrator.cli.attach:attach", "Look at a session while it runs, and answer it."),
    "stop": Entry("coterie.orchestrator.cli.stop:stop", "Stop a running session, or one of its agents."),
    "background": Entry("coterie.orchestrator.cli.stop:background", "Let nobody wait for an agent that works."),
    "compact": Entry("coterie.orchestrator.cli.compact:compact", "Compact the conversation of an agent."),
    "logs": Entry("coterie.orchestrator.cli.logs:logs", "Show what happened in a session."),
    "costs": Entry("coterie.orchestrator.cli.costs:costs", "Show what a session has cost, and why."),
    "report": Entry("coterie.orchestrator.cli.report:report", "Make a page about a session, for a browser."),
    "mail": Entry("coterie.orchestrator.cli.mail:mail", "Send mail to the agents of a session, and look at theirs."),
    "tasks": Entry("coterie.orchestrator.cli.tasks:tasks", "Show and change the task list of a session."),
    "approvals": Entry(
        "coterie.orchestrator.cli.approvals:approvals", "Show what agents wait for your yes to, and answer."
    ),
    "hooks": Entry("coterie.orchestrator.cli.hooks:hooks", "Show and approve commands that run at events."),
    "mcp": Entry("coterie.orchestrator.cli.mcp:mcp", "List, approve and test MCP servers."),
    "memory": Entry("coterie.orchestrator.cli.memory:memory", "Look at what agents remember, check it, undo it."),
    "completion": Entry(
        "coterie.orchestrator.cli.completion_script:completion", "Print the script by which a shell completes names."
    ),
    "doctor": Entry("coterie.orchestrator.cli.doctor:doctor", "Find what crashes have left behind, and mend it."),
}


class CommandTable(click.Group):
    """A group whose commands are loaded by name; its help is written from the table alone."""

    table: ClassVar[Mapping[str, Entry]] = COMMANDS

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, or answer a shell that wants to complete its command line."""
        if instruction := os.environ.get("_COTERIE_COMPLETE"):
            from coterie.orchestrator.cli.completion_script import answer_shell  # noqa: PLC0415 - seldom asked

            sys.exit(0 if answer_shell(self, instruction) else ExitCode.USAGE)
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
            near = nearest(args[0], self.table, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.table)}."
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; configuration that cannot be used is one line, and Ctrl-C none, whichever met it."""
        try:
            return super().invoke(ctx)
        except ConfigInvalid as exc:
            raise Refused(str(exc)) from exc
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
