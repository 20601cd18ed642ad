"""`coterie memory`: table of subcommands, each imported only when it is used."""

from typing import ClassVar

import click

from coterie.orchestrator.cli.main import CommandEntry, CommandTable

_HERE = "coterie.orchestrator.cli.memory"


class MemoryCommands(CommandTable):
    """The commands of `coterie memory`."""

    table: ClassVar = {
        "list": CommandEntry(f"{_HERE}.browse:list_memories", "List memories, and what they are about."),
        "show": CommandEntry(f"{_HERE}.browse:show", "Show one memory, or the index."),
        "recall": CommandEntry(f"{_HERE}.recall_query:recall", "Show which memories fit a question."),
        "check": CommandEntry(f"{_HERE}.memory_check:check", "Find what is wrong with memories, and mend the index."),
        "extract": CommandEntry(f"{_HERE}.extract:extract", "Keep what is worth keeping of a session."),
        "dream": CommandEntry(f"{_HERE}.dream:dream", "Put memories in order; decide about what would be deleted."),
        "log": CommandEntry(f"{_HERE}.memory_changes:log", "List the changes of memories."),
        "diff": CommandEntry(f"{_HERE}.memory_changes:diff", "Show what a change did."),
        "undo": CommandEntry(f"{_HERE}.memory_changes:undo", "Take a change back."),
        "instructions": CommandEntry(
            f"{_HERE}.instructions:instructions", "Show all that an agent is told before its task."
        ),
        "snapshot": CommandEntry(f"{_HERE}.snapshot:snapshot", "Let others begin with what a kind of agent knows."),
    }


@click.group(cls=MemoryCommands)
def memory() -> None:
    """Look at what agents remember, check it, undo it."""
