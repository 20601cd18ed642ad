"""Built-in tools in the order of a request, and the names of all tools."""

from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.glob import Glob
from coterie.agents.tools.files.notebook_edit import NotebookEdit
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.search.grep import Grep
from coterie.agents.tools.search.search_transcript import SearchTranscript
from coterie.agents.tools.shell.bash import Bash
from coterie.agents.tools.shell.bash_output import BashOutput, KillBash
from coterie.agents.tools.team.control_tools import ExitPlanMode, TaskStop
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import TASK_TOOLS
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.web.web_fetch import WebFetch

BUILT_IN: tuple[Tool, ...] = (
    *(Read(), Write(), Edit(), NotebookEdit()),
    *(Grep(), Glob(), Bash(), BashOutput(), KillBash()),
)
"""In the order of a request's tools, which is part of every cached prefix. Those that belong to a session follow."""
_OF_A_SESSION = (
    SearchTranscript.name,
    SendMessage.name,
    *TASK_TOOLS,
    "Agent",
    TaskStop.name,
    ExitPlanMode.name,
    "Skill",
    WebFetch.name,
)
NAMES = (*(tool.name for tool in BUILT_IN), *_OF_A_SESSION)
"""What rules and definitions may call a tool."""
