"""Built-in tools in the order of a request."""

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
"""Built-in tools in the order of a request, which is part of every cached prefix. Tools of the session follow."""
