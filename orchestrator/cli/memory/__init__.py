"""`coterie memory`: table of subcommands, each imported only when it is used."""

from typing import ClassVar

import click

from coterie.orchestrator.cli.main import CommandEntry, CommandTable

_HERE = "coterie.orchestrator.cli.memory"


class MemoryCommands(CommandTable):
    """Group of the `coterie memory` subcommands: names, code locations and help lines."""

    table: ClassVar = {
        "list": CommandEntry(f"{_HERE}.browse:list_memories", "List memories with their descriptions."),
        "show": CommandEntry(
            f"{_HERE}.browse:show", "Show one memory, or the index (the list of memories that agents see)."
        ),
        "recall": CommandEntry(f"{_HERE}.recall_query:recall", "Show the memories that match a query."),
        "check": CommandEntry(f"{_HERE}.memory_check:check", "Find problems of memories, and repair the index."),
        "extract": CommandEntry(f"{_HERE}.extract:extract", "Let a model save memories from an ended session."),
        "dream": CommandEntry(
            f"{_HERE}.dream:dream", "Let an agent tidy the memories, and decide about its deletions."
        ),
        "log": CommandEntry(f"{_HERE}.memory_changes:log", "List changes of memories."),
        "diff": CommandEntry(f"{_HERE}.memory_changes:diff", "Show the diff of a change."),
        "undo": CommandEntry(f"{_HERE}.memory_changes:undo", "Undo a change, or all changes of a dream."),
        "instructions": CommandEntry(
            f"{_HERE}.instructions:instructions", "Show all texts that a new agent starts with."
        ),
        "snapshot": CommandEntry(
            f"{_HERE}.snapshot:snapshot", "Copy the memories of an agent type into the project, to commit them."
        ),
    }


@click.group(cls=MemoryCommands)
def memory() -> None:
    """Show, check and change memories: Markdown files in which agents keep facts from one session to the next."""
