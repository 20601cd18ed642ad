"""What an agent is told before its task: where it is, instruction files, the index of its memory, and skills."""

import platform
import time
from pathlib import Path

from coterie.agents.home import home
from coterie.agents.project import checkout_root, project_root
from coterie.agents.prompt import render
from coterie.clock import Clock
from coterie.memory.instructions import Instructions, Places, load_instructions
from coterie.orchestrator.approved_files import ApprovedFiles


def instructions_of(project: Path) -> Instructions:
    """The instruction files that hold in *project*. Blocks on the disk. Raises `ConfigInvalid`."""
    # The files are those of this checkout; approvals hold for all worktrees of the project.
    places = Places(home=home(), project=checkout_root(project), working=project)
    return load_instructions(places, ApprovedFiles.of(project_root(project)).__contains__)


def context_text(
    project: Path, clock: Clock, instructions: Instructions | None, memory: str, skills: str = "", servers: str = ""
) -> str:
    """What an agent is told before its task; *memory* is the index of what it remembers, *skills* lists those.

    *servers* is what MCP servers say on how to use them.
    """
    # Read once, when the session begins: a date that changed overnight would break the prefix.
    date = time.strftime("%Y-%m-%d", time.localtime(clock.now()))
    context = render("context", directory=str(project), platform=platform.system(), date=date)
    words = instructions.to_text() if instructions is not None else ""
    files = words and render("instructions", files=words)
    return "\n\n".join(filter(None, [context, files, memory, skills, servers]))
