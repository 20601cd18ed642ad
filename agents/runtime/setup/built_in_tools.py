"""Tuple of the built-in tools, in the order in which a model request lists them."""

from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.glob import Glob
from coterie.agents.tools.files.notebook_edit import NotebookEdit
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.search.grep import Grep
from coterie.agents.tools.shell.bash import Bash, BashOutput, KillBash
from coterie.agents.tools.tool import Tool

BUILT_IN: tuple[Tool, ...] = (
    *(Read(), Write(), Edit(), NotebookEdit()),
    *(Grep(), Glob(), Bash(), BashOutput(), KillBash()),
)
"""Tools for files, search and shell, first in each model request. A new order would break the prompt cache."""
