"""What an agent may do: decided outside the prompt, call by call, before a tool runs.

A denied call is answered with the reason, so that the model can do without it. Tools are never taken out of the
request for it: prefixes stay shared.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from coterie.agents.tools.tool import Tool, Workspace

Mode = Literal["default", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)


@attrs.frozen(kw_only=True)
class Permissions:
    """The rules of one agent.

    By default a tool that only reads may read inside the workspace, and nothing else is allowed: nobody is there to
    be asked. With `bypassPermissions` everything is.
    """

    mode: Mode = "default"

    def denial(self, tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        """Why a call is denied, in words for the model; None if it may run."""
        if self.mode == "bypassPermissions":
            return None
        if not tool.is_read_only:
            return f"{tool.name} is not permitted in this run: only tools that read are."
        root = workspace.root.resolve()
        for path in tool.touches(arguments, workspace):
            if not _is_within(path, root):
                return f"{tool.name} may read inside {root} only, and {path} is outside."
        return None


def _is_within(path: Path, root: Path) -> bool:
    # Links are followed first: a link inside that leads outside is outside.
    return path.resolve().is_relative_to(root)
