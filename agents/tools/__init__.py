"""What an agent can do besides talking: one module for each tool, all described and called in the same way."""

from coterie.agents.tools.bash import Bash
from coterie.agents.tools.bash_output import BashOutput
from coterie.agents.tools.edit import Edit
from coterie.agents.tools.exit_plan_mode import ExitPlanMode
from coterie.agents.tools.glob import Glob
from coterie.agents.tools.grep import Grep
from coterie.agents.tools.kill_bash import KillBash
from coterie.agents.tools.notebook_edit import NotebookEdit
from coterie.agents.tools.read import Read
from coterie.agents.tools.search_transcript import SearchTranscript
from coterie.agents.tools.send_message import SendMessage
from coterie.agents.tools.task_stop import TaskStop
from coterie.agents.tools.tasks import TASK_TOOLS
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.web_fetch import WebFetch
from coterie.agents.tools.write import Write

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
