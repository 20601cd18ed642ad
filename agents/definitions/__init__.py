"""What kinds of agents there are: Markdown files that say when to use one, what it may use and how it works."""

from coterie.agents.definitions.definition import Definition, Scope
from coterie.agents.definitions.problem import Problem, Severity
from coterie.agents.definitions.reading import read_definition
from coterie.agents.definitions.store import Definitions, load_definitions, load_path

__all__ = [
    "Definition",
    "Definitions",
    "Problem",
    "Scope",
    "Severity",
    "load_definitions",
    "load_path",
    "read_definition",
]
