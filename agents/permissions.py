"""What an agent may do: decided outside the prompt, call by call, before a tool runs.

A denied call is answered with the reason, so that the model can do without it. Tools are never taken out of the
request for it: prefixes stay shared.
"""

from pathlib import Path
from typing import Any, Literal, get_args

import attrs

from coterie.agents.home import home
from coterie.agents.tools.tool import Tool, Workspace

Mode = Literal["default", "acceptEdits", "bypassPermissions"]
MODES: tuple[Mode, ...] = get_args(Mode)

PROTECTED_DIRECTORIES = frozenset({".git", ".coterie", ".claude"})
"""Whoever writes there decides over later runs: hooks, settings, definitions of agents, memory."""
START_UP_FILES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", "config.fish"),
    }
)


@attrs.frozen(kw_only=True)
class Permissions:
    """The rules of one agent; nobody is there to be asked, so what is not allowed is denied.

    default: tools that read may read inside the workspace. acceptEdits: tools that edit may edit there too, but not
    what decides over later runs. bypassPermissions: everything.
    """

    mode: Mode = "default"

    def denial(self, tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        """Why a call is denied, in words for the model; None if it may run. Raises `ToolFailed` as `touches` does."""
        if self.mode == "bypassPermissions":
            return None
        allowed = ("read", "edit") if self.mode == "acceptEdits" else ("read",)
        if tool.access not in allowed:
            return f"{tool.name} is not permitted in this run: only tools that {' or '.join(allowed)} files are."
        reasons = (_path_denial(tool, path, workspace) for path in tool.touches(arguments, workspace))
        return next((reason for reason in reasons if reason is not None), None)


def _path_denial(tool: Tool, path: Path, workspace: Workspace) -> str | None:
    root = workspace.root.resolve()
    # Links are followed first: a link inside that leads outside is outside.
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        return f"{tool.name} may touch files inside {root} only, and {path} is outside."
    if tool.access != "read" and _is_protected(resolved, root):
        return f"{path} is protected: what stands there decides over later runs, so only the user may change it."
    return None


def _is_protected(path: Path, root: Path) -> bool:
    # Compared without case: on some file systems .GIT is .git.
    parts = {part.lower() for part in path.relative_to(root).parts}
    return bool(parts & PROTECTED_DIRECTORIES) or path.name.lower() in START_UP_FILES or path.is_relative_to(home())
