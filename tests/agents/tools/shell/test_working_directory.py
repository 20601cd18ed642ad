"""Tests of the working directory between commands."""

import os
import subprocess
from pathlib import Path

import pytest

from coterie.agents.tools.files.read import Read
from coterie.agents.tools.shell.bash import Bash, BashInput
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.agents.tools.workspace.shell_process import SHELL
from coterie.agents.tools.workspace.working_directory import ShellState
from coterie.files import file_faults
from tests.agents.tools.tool_calls import bash, call
from tests.seeded_faults import SeededFaults

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    (root / "sub" / "deep").mkdir(parents=True)
    scratch.mkdir()
    return Workspace(root=root, scratch=scratch)


async def _next(workspace: Workspace) -> str:
    """Return the directory of the next command, relative to the root."""
    result = await bash(workspace, "pwd -P")
    assert not result.is_error
    return str(Path(result.text).relative_to(workspace.root))


def _in_a_plain_shell(command: str, directory: Path) -> list[str]:
    """Run *command* in a plain shell and format its output and exit code like the tool."""
    ended = subprocess.run(
        [SHELL, "-c", command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    status = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return [*ended.stdout.decode().splitlines(), *([f"[exit code {status}]"] if status else [])]


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("cd sub", "sub"),
        ("cd sub && cd deep", "sub/deep"),
        ("cd sub; false", "sub"),
        ("cd sub; exit 3", "sub"),
        ("cd sub; set -e; false; cd ..", "sub"),
        ("set -eu; cd sub; echo $missing", "sub"),
        ("set -o noclobber -o posix; cd sub", "sub"),
        ("cd sub; exec > /dev/null 2>&1; echo unheard", "sub"),
        ("exit() { builtin exit 0; }; pwd() { echo /; }; cd sub; exit", "sub"),
        ("(cd sub); cd sub | cat; bash -c 'cd sub'; x=$(cd sub)", "."),
        ("cd sub\n)", "sub"),
        ("cd sub; )", "."),
        ("cd sub; exec true", "."),
        ("cd sub; kill -KILL $$", "."),
        ("cd sub; trap 'cd deep' EXIT", "."),
        ("cd missing", "."),
        ("mkdir 'a b\n'; cd 'a b\n'", "a b\n"),
    ],
)
async def test_next_command_starts_in_final_directory_of_previous(
    command: str, directory: str, workspace: Workspace
) -> None:
    await bash(workspace, command)
    assert workspace.shell.directory == workspace.root / directory
    if "\n" not in directory:
        assert await _next(workspace) == directory


@pytest.mark.parametrize(
    "command",
    [
        "echo $? $# $0 $-; declare -F; env | grep -c BASH_ENV",
        "echo one\nnonexistent-command\necho $LINENO",
        "set -x; cd sub; echo hi",
        "trap 'echo failed' ERR; false",
        "trap 'echo bye $?' EXIT; exit 4",
        "echo (",
        "cat <<END\nno end",
        "exit 3",
        "kill -TERM $$",
        "cd sub; rm -rf ../sub; exit 2",
        "return 2",
    ],
)
async def test_command_runs_like_in_plain_shell(command: str, workspace: Workspace) -> None:
    expected = _in_a_plain_shell(command, workspace.root)
    (workspace.root / "sub").mkdir(exist_ok=True)
    shown = (await bash(workspace, command)).text.split("\n")
    assert [line for line in shown if not line.startswith("[the working directory")] == expected
    assert os.listdir(workspace.scratch) == []  # noqa: PTH208 - names only


async def test_users_bash_env_file_is_sourced(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    start_up = workspace.scratch / "it's mine"
    start_up.write_text("greet() { echo hello; }\n")
    monkeypatch.setenv("BASH_ENV", str(start_up))
    result = await bash(workspace, "greet; bash -c greet; echo $BASH_ENV; cd sub")
    assert result.text == f"hello\nhello\n{start_up}"
    assert await _next(workspace) == "sub"
    start_up.unlink()
    assert await bash(workspace, "true") == ToolResult(text="")


async def test_timed_out_command_does_not_change_directory(workspace: Workspace) -> None:
    await bash(workspace, "cd sub")
    assert (await bash(workspace, "cd deep; sleep 100", timeout=0.2)).text == "[timed out after 0.2 s]"
    assert await _next(workspace) == "sub"
    assert os.listdir(workspace.scratch) == []  # noqa: PTH208 - names only


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("cd sub/deep; cd /usr; echo out", "out\n[the working directory is {root} again: /usr is outside it]"),
        ("cd sub; ln -s /usr l; cd l; echo out", "out\n[the working directory is {root} again: /usr is outside it]"),
        ("cd /usr; exit 3", "[the working directory is {root} again: /usr is outside it]\n[exit code 3]"),
        ("cd sub; rm -r ../sub", "[the working directory is {root} again: {root}/sub does not exist any longer]"),
        (r"mkdir $'caf\xe9'; cd caf*", "[the working directory is {root} again: {root}/caf\ufffd is not UTF-8]"),
    ],
)
async def test_command_ending_in_unusable_directory_resets_it_to_root(
    command: str, text: str, workspace: Workspace
) -> None:
    result = await bash(workspace, command)
    assert result == ToolResult(text=text.format(root=workspace.root), is_error="exit code" in text)
    assert await _next(workspace) == "."


async def test_directory_deleted_or_replaced_between_commands_resets_to_root(workspace: Workspace) -> None:
    sub, deep = workspace.root / "sub", workspace.root / "sub" / "deep"
    await bash(workspace, "cd sub/deep")
    deep.rmdir()
    note = f"[the working directory is {workspace.root} again: {deep} does not exist any longer]"
    assert await bash(workspace, "pwd") == ToolResult(text=f"{workspace.root}\n{note}")
    assert await bash(workspace, "pwd") == ToolResult(text=str(workspace.root))
    assert workspace.shell.update_directory(sub) is None
    sub.rmdir()
    sub.symlink_to("/usr")
    assert "does not exist" in (workspace.shell.enter() or "")
    assert workspace.shell.directory == workspace.root


async def test_paths_of_other_tools_are_relative_to_root(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("root")
    (workspace.root / "sub" / "a.txt").write_text("sub")
    assert (await bash(workspace, "cd sub; cat a.txt")).text == "sub"
    assert (await call(Read(), workspace, file_path="a.txt")).text == "     1\troot"
    assert Bash().paths_affected(BashInput(command="ls"), workspace) == [workspace.root / "sub"]


async def test_command_is_refused_if_report_file_cannot_be_created(workspace: Workspace) -> None:
    with file_faults(SeededFaults(seed=1, full=1.0)):
        result = await bash(workspace, "touch ran")
    assert result.is_error
    assert "could not be started: [Errno 28] No space left" in result.text
    workspace.scratch.rmdir()
    assert "could not be started" in (await bash(workspace, "touch ran")).text
    assert not (workspace.root / "ran").exists()


async def test_command_may_delete_scratch_directory(workspace: Workspace) -> None:
    assert await bash(workspace, f"rm -rf {workspace.scratch}/.shell-*; cd sub") == ToolResult(text="")
    assert await _next(workspace) == "."


def test_root_link_is_resolved_and_reset_to_root_is_a_change(workspace: Workspace) -> None:
    (workspace.scratch / "link").symlink_to(workspace.root)
    shell = ShellState(root=workspace.scratch / "link")
    assert shell.directory == workspace.root
    assert shell.update_directory(workspace.root / "sub") is None
    assert shell.take_changes() == "sub"
    shell.update_directory(Path("/usr"))
    assert shell.take_changes() == "."


def test_restored_directory_is_inside_root_and_checked_before_use(workspace: Workspace) -> None:
    for outside in ("..", "sub/../..", "/usr"):
        with pytest.raises(ValueError, match="is outside the project"):
            workspace.shell.restore(outside)
    workspace.shell.restore("missing")
    assert "does not exist" in (workspace.shell.enter() or "")
    assert workspace.shell.directory == workspace.root
