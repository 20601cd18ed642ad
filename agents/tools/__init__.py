"""What an agent can do besides talking: one module for each tool, all described and called in the same way."""

from coterie.agents.tools.bash import Bash
from coterie.agents.tools.read import Read
from coterie.agents.tools.tool import Tool

BUILT_IN: tuple[Tool, ...] = (Read(), Bash())
"""In the order of a request's tools, which is part of every cached prefix."""
