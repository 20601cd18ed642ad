from pathlib import Path

import pytest

from coterie.agents.permissions import Permissions
from coterie.agents.tools.bash import Bash, BashInput
from coterie.agents.tools.read import Read, ReadInput
from coterie.agents.tools.tool import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "root/inside").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    (tmp_path / "root/up").symlink_to(tmp_path)
    return Workspace(root=tmp_path / "root", scratch=tmp_path)


@pytest.mark.parametrize("path", ["a.py", "inside/../a.py", "./inside/b", "missing/c"])
def test_reading_inside_the_workspace_is_allowed(workspace: Workspace, path: str) -> None:
    assert Permissions().denial(Read(), ReadInput(file_path=path), workspace) is None


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "up/secret", "inside/../../secret"])
def test_reading_outside_is_denied_whatever_the_path_looks_like(workspace: Workspace, path: str) -> None:
    denial = Permissions().denial(Read(), ReadInput(file_path=path), workspace)
    assert denial is not None
    assert str(workspace.root) in denial


def test_a_command_is_denied_unless_everything_is_permitted(workspace: Workspace) -> None:
    arguments = BashInput(command="true")
    assert "not permitted" in (Permissions().denial(Bash(), arguments, workspace) or "")
    assert Permissions(mode="bypassPermissions").denial(Bash(), arguments, workspace) is None
