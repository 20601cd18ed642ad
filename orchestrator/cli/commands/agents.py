"""`coterie agents`: lists and checks agent definitions."""

from typing import Any

import attrs
import click

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import load_definitions, load_path
from coterie.orchestrator.cli.commands.definition_commands import DefinitionCommands, plain_text, shown_path


@click.group()
def agents() -> None:
    """List and check agent types. An agent type is a file with the prompt, the tools and the model of an agent."""


def _row(definition: AgentDefinition) -> dict[str, Any]:
    """Return a definition as a JSON object, without its prompt and its own MCP servers, which may contain secrets."""
    row = attrs.asdict(definition, filter=attrs.filters.exclude("prompt", "own_servers"))
    return {**row, "source": None if definition.source is None else str(definition.source)}


def _heading(definition: AgentDefinition) -> str:
    if definition.scope == "built-in" or definition.source is None:
        return definition.scope
    return plain_text(f"{definition.scope}  {shown_path(definition.source).parent}")


def _cells(definition: AgentDefinition) -> list[str]:
    tools = "all tools" if definition.tools is None else ", ".join(definition.tools) or "no tools"
    cells = definition.name, definition.model or "inherit", tools, definition.description
    return [plain_text(" ".join(cell.split())) for cell in cells]


DefinitionCommands(
    noun="agent",
    article="an",
    listing="List the agent types that can be used in the current directory.\n\n"
    "An agent type is a file with the prompt, the tools and the model of an agent. The list shows name, model, tools "
    "and description of each type, grouped by the directory of the files. Invalid files are not listed.",
    key="definitions",
    expected="a definition file, or a directory of them",
    load=load_definitions,
    load_path=load_path,
    row=_row,
    heading=_heading,
    cells=_cells,
    widest=24,
).add_to(agents)
