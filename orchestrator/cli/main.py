"""The `coterie` program: a table of commands, each imported only when it is used.

`coterie --help` must answer at once and be free of the SDK's two seconds of import, so the table holds every
command's summary and the dotted name of its code. That name may point upwards, to `scenarios/`, without this
module importing it.
"""

from importlib import import_module

import attrs
import click

from coterie import __version__


@attrs.frozen
class Entry:
    """Where a command lives, and what `--help` says of it."""

    target: str
    """`module:attribute` of a click command."""
    summary: str


COMMANDS = {
    "demo": Entry("coterie.scenarios.demo:command", "Show a scripted conversation, its fork and its bill."),
    "serve": Entry("coterie.scenarios.server.command:serve", "Run the embedded Messages API server."),
}


class CommandTable(click.Group):
    """A group whose commands are loaded by name; its help is written from the table alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None for a name the table does not have."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without loading a command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="coterie")
def main() -> None:
    """Run a team of Claude agents as operating-system processes."""
