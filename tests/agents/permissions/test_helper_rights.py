"""Permissions of a helper, which never prompts."""

from pathlib import Path
from typing import Any

import pytest

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.tools.files.edit import Edit, EditInput
from coterie.agents.tools.files.glob import Glob, GlobInput
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.search.grep import Grep, GrepInput
from coterie.agents.tools.shell.bash import Bash, BashInput, KillBash, KillBashInput
from coterie.agents.tools.tool import Tool, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Workspace with a project, a memory outside of the project, and a link that leaves the project."""
    root = tmp_path / "project"
    for directory in (root / "src", tmp_path / "memory", tmp_path / "home"):
        directory.mkdir(parents=True)
    (root / "out").symlink_to(tmp_path / "home")
    return Workspace(root=root, scratch=tmp_path / "scratch")


async def _denial(workspace: Workspace, tool: Tool, arguments: Any, *denied: str) -> str | None:
    rules = tuple(Rule.parse(text, "test") for text in denied)
    authority = Authorizer(Permissions().within(Permissions(mode="bypassPermissions", deny=rules)))
    rights = HelperRights(writable=(workspace.root.parent / "memory",), authority=authority)
    return await rights.denial(tool, arguments, workspace)


async def test_helper_reads_project_and_memory_and_writes_only_memory(workspace: Workspace) -> None:
    memory = workspace.root.parent / "memory"
    allowed: list[tuple[Tool, Any]] = [
        (Read(), ReadInput(file_path="src/a.py")),
        (Read(), ReadInput(file_path=str(memory / "a.md"))),
        (Grep(), GrepInput(pattern="x")),
        (Glob(), GlobInput(pattern="*.md", path=str(memory))),
        (Write(), WriteInput(file_path=str(memory / "a.md"), content="x")),
        (Edit(), EditInput(file_path=str(memory / "sub/a.md"), old_string="x", new_string="y")),
    ]
    for tool, arguments in allowed:
        assert await _denial(workspace, tool, arguments) is None
    outside: list[tuple[Tool, Any]] = [
        (Read(), ReadInput(file_path="/etc/hosts")),
        (Read(), ReadInput(file_path="out/key")),
        (Grep(), GrepInput(pattern="x", path=str(workspace.root.parent / "home"))),
        (Write(), WriteInput(file_path="src/a.py", content="x")),
        (Write(), WriteInput(file_path=str(memory / "../home/a.md"), content="x")),
    ]
    for tool, arguments in outside:
        reason = await _denial(workspace, tool, arguments)
        assert reason is not None
        assert "is outside" in reason


async def test_every_other_tool_is_denied(workspace: Workspace) -> None:
    reason = await _denial(workspace, KillBash(), KillBashInput(bash_id="1"))
    assert reason is not None
    assert "cannot be used here" in reason


@pytest.mark.parametrize(
    "command",
    ["ls -la", "cat src/a.py", "grep -rn x src | head -n 3", "cat src/*.py", "git log -5", "ls ../memory 2>/dev/null"],
)
async def test_read_only_command_inside_is_allowed(workspace: Workspace, command: str) -> None:
    assert await _denial(workspace, Bash(), BashInput(command=command)) is None


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo x > src/a.py", "this has a redirection"),
        ("rm src/a.py", "this has rm"),
        ("cat /etc/passwd", "is outside"),
        ("cat ../home/key", "is outside"),
        ("cat out/key", "is outside"),
        ("cat < out/key", "is outside"),
        ("cat out/*", "is outside"),
        ('cat "/etc"/*', "cannot be told"),
        ("cat src/*/../../../home/key", "cannot be told"),
        ("cat ~/.ssh/id_rsa", "cannot be told"),
        ("cat $HOME/key", "cannot be told"),
        ("grep -f/etc/passwd x", "cannot be told"),
        ("grep --file=/etc/passwd x", "is outside"),
        ("echo $(cat /etc/passwd)", "cannot be told"),
        ("cd src", "this has cd"),
    ],
)
async def test_command_that_writes_or_reads_outside_is_denied(workspace: Workspace, command: str, reason: str) -> None:
    denied = await _denial(workspace, Bash(), BashInput(command=command))
    assert denied is not None
    assert reason in denied


async def test_deny_rules_of_agent_and_parent_apply_to_the_helper(workspace: Workspace) -> None:
    rule = "Read(src/**)"
    assert await _denial(workspace, Read(), ReadInput(file_path="src/a.py"), rule) == (
        f"The rule {rule} denies this call."
    )
    assert await _denial(workspace, Read(), ReadInput(file_path="b.py"), rule) is None


async def test_invalid_path_is_a_tool_failure(workspace: Workspace) -> None:
    with pytest.raises(ToolFailed):
        await _denial(workspace, Read(), ReadInput(file_path="a\0b"))
