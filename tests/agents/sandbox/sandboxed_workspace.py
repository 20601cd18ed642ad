"""Workspace with sandboxed commands, and files outside."""

import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from coterie.agents.sandbox.backends import SandboxBackend, unavailable_reason
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.sandbox.sensitive_paths import Repository
from coterie.agents.tools.shell.bash import Bash
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool

PYTHON = str(Path(sys.executable).resolve())
"""The real interpreter, because a virtual environment may be in a hidden directory."""


def needs(way: SandboxBackend) -> None:
    """Skip the test if this machine does not support the backend."""
    if missing := unavailable_reason(way):
        pytest.skip(missing)


@attrs.frozen
class SandboxedWorkspace:
    """A directory of which sandboxed commands see only parts."""

    directory: Path
    workspace: Workspace

    @classmethod
    def make(cls, directory: Path, way: SandboxBackend | None, **changes: Any) -> "SandboxedWorkspace":
        """Create the workspace `project` in *directory*, with the sandbox backend *way* or without a sandbox."""
        names = ("project", "own", "own/temporary", "hidden", "hidden/shown", "hidden/open")
        root, own, temporary, hidden, shown, opened = (directory / name for name in names)
        for path in (root, own, temporary, hidden, shown, opened):
            path.mkdir(exist_ok=True)
        (directory / "outside").write_text("as it was")
        (hidden / "key").write_text("a secret")
        (shown / "result").write_text("a result")
        repository = Repository.of(root)
        sandbox = None
        if way is not None:
            sandbox = Sandbox(
                way=way,
                root=root,
                temporary=temporary,
                hidden=(hidden,),
                readable=(shown, *repository.readable),
                writable=(opened, *repository.writable),
                protected=repository.protected,
                unwanted=repository.unwanted,
            )
            sandbox = attrs.evolve(sandbox, **changes)
        return cls(directory, Workspace(root=root, scratch=own, sandbox=sandbox))

    async def bash(self, command: str, *, grace: float = 0.1, **value: Any) -> ToolResult:
        with trio.fail_after(20):
            return await call_tool({"Bash": Bash(grace=grace)}, "Bash", {"command": command, **value}, self.workspace)

    async def python(self, program: str, *arguments: object) -> str:
        (self.workspace.root / "program.py").write_text(program)
        words = " ".join(map(str, arguments))
        return (await self.bash(f"{PYTHON} -I program.py {words}")).text
