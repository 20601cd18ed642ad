"""`coterie memory`: what agents remember, from a shell; each command is imported only when it is used."""

from typing import ClassVar

import click

from coterie.orchestrator.cli.main import CommandTable, Entry

_HERE = "coterie.orchestrator.cli.memory"


class MemoryCommands(CommandTable):
    """The commands of `coterie memory`."""

    table: ClassVar = {
        "list": Entry(f"{_HERE}.looking:list_memories", "List memories, and what they are about."),
        "show": Entry(f"{_HERE}.looking:show", "Show one memory, or the index."),
        "recall": Entry(f"{_HERE}.recalling:recall", "Show which memories fit a question."),
        "check": Entry(f"{_HERE}.checking:check", "Find what is wrong with memories, and mend the index."),
        "extract": Entry(f"{_HERE}.extract:extract", "Keep what is worth keeping of a session."),
        "dream": Entry(f"{_HERE}.dream:dream", "Put memories in order; decide about what would be deleted."),
        "log": Entry(f"{_HERE}.history:log", "List the changes of memories."),
        "diff": Entry(f"{_HERE}.history:diff", "Show what a change did."),
        "undo": Entry(f"{_HERE}.history:undo", "Take a change back."),
        "instructions": Entry(f"{_HERE}.instructions:instructions", "Show all that an agent is told before its task."),
        "snapshot": Entry(f"{_HERE}.snapshot:snapshot", "Let others begin with what a kind of agent knows."),
    }


@click.group(cls=MemoryCommands)
def memory() -> None:
    """Look at what agents remember, check it, undo it."""
