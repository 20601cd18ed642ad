"""Tests of the Glob tool with and without git."""

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.files import directory_walk
from coterie.agents.tools.files.directory_walk import list_files
from coterie.agents.tools.files.glob import SHOWN, Glob
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.glob_pattern import GlobPattern
from tests.agents.tools.tool_calls import call
from tests.examples import examples
from tests.orchestrator.supervisor.git_repositories import git


def _grow(root: Path, *names: str) -> None:
    """Create empty files, each one second newer than the previous."""
    for age, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1_000_000 + age, 1_000_000 + age))


async def _glob(workspace: Workspace, pattern: str, **value: Any) -> ToolResult:
    return await call(Glob(), workspace, pattern=pattern, **value)


async def _names(directory: Path) -> list[str]:
    return list((await list_files(directory)).names)


@pytest.mark.parametrize(
    ("names", "pattern", "text"),
    [
        (["b.py", "src/a.py", "src/deep/c.py", "src/d.txt"], "**/*.py", "src/deep/c.py\nsrc/a.py\nb.py"),
        (["a.py", "b.py"], "*.rs", "no file matches '*.rs' (2 files checked)"),
        ([os.fsdecode(b"caf\xe9\n.py")], "*.py", "caf\ufffd\ufffd.py"),
    ],
    ids=["newest first", "no match", "unprintable name"],
)
async def test_matching_files_are_listed_newest_first_then_by_path(
    names: list[str], pattern: str, text: str, workspace: Workspace
) -> None:
    _grow(workspace.root, *names)
    assert await _glob(workspace, pattern) == ToolResult(text=text)
    for path in workspace.root.rglob("*"):
        os.utime(path, (5, 5))
    same_age = (await _glob(workspace, pattern)).text.split("\n")
    assert same_age == sorted(text.split("\n"))


async def test_paths_inside_project_are_relative_and_others_absolute(workspace: Workspace) -> None:
    _grow(workspace.root, "src/a.py", "lib/a.py")
    assert (await _glob(workspace, "*.py", path="src")).text == "src/a.py"
    assert (await _glob(workspace, "*.py", path=str(workspace.root / "lib"))).text == "lib/a.py"
    inside = Workspace(root=workspace.root / "src", scratch=workspace.root)
    assert (await _glob(inside, "*.py", path="../lib")).text == str(workspace.root / "lib" / "a.py")


async def test_hundred_files_are_shown_and_the_rest_counted(workspace: Workspace) -> None:
    _grow(workspace.root, *(f"f{n:03}" for n in range(SHOWN + 1)))
    lines = (await _glob(workspace, "*")).text.split("\n")
    assert lines[0] == "f100"
    assert lines[99:] == ["f001", "[1 more files match; use a narrower pattern, or give a subdirectory as path]"]
    (workspace.root / "f000").unlink()
    assert (await _glob(workspace, "*")).text.split("\n")[99:] == ["f001"]


@pytest.mark.parametrize(
    ("pattern", "path", "words"),
    [
        *((pattern, None, "leads out") for pattern in ("/etc/*", "src/../../*", "{a,/b}")),
        *((pattern, None, "more than 64 alternatives") for pattern in ("{a,b}" * 7, "{,}" * 166)),
        ("{a,b", None, "without a matching }"),
        ("{" * 249 + "}" * 249, None, "no file matches"),
        ("*" * 501, None, "shorten it to at most 500"),
        ("*", "nowhere", "No such file"),
        ("*", "a.py", "Not a directory"),
    ],
)
async def test_invalid_pattern_or_directory_is_refused(
    pattern: str, path: str | None, words: str, workspace: Workspace
) -> None:
    _grow(workspace.root, "a.py")
    result = await _glob(workspace, pattern, path=path)
    assert (words in result.text, result.is_error) == (True, words != "no file matches")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", ".py"], ["src/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "src/a.py", "src/x/a.py"], ["a.txt"]),
        ("./src/*.ts", ["src/a.ts"], ["src/x/a.ts", "a.ts"]),
        ("src/**", ["src/a", "src/x/a"], ["src", "lib/a"]),
        ("src/**/test/*.py", ["src/test/a.py", "src/x/y/test/a.py"], ["src/test/x/a.py"]),
        ("**/a/**/b", ["a/b", "x/a/y/b", "a/a/b"], ["b", "a/c"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t", "a.tsxx"]),
        ("{src,lib/{a,b}}/*.py", ["src/x.py", "lib/a/x.py", "lib/b/x.py"], ["lib/x.py"]),
        ("{a,}b", ["ab", "b"], ["a"]),
        ("test_?.py", ["test_1.py"], ["test_.py", "test_12.py"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a]x", ["bx"], ["ax", "/x"]),
        ("[^a]x", ["bx"], ["ax"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("a+(b).txt", ["a+(b).txt"], ["aab.txt"]),
        ("", [], ["a"]),
    ],
)
def test_pattern_matches_like_shell(pattern: str, matching: list[str], other: list[str]) -> None:
    wildcard = GlobPattern.parse(pattern)
    assert [path for path in [*matching, *other] if wildcard.matches(path)] == matching


def test_many_stars_match_in_linear_time() -> None:
    """A backtracking matcher would take exponential time."""
    assert not GlobPattern.parse("*a" * 60 + "b").matches("a" * 255)
    assert not GlobPattern.parse("**/a/" * 60 + "b").matches("a/" * 400 + "c")


@examples(40)
@given(
    parts=st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=4),
    steps=st.lists(st.sampled_from(["**", "*", "a", "?b", "a*", "*.b"]), min_size=1, max_size=4),
)
def test_double_star_matches_any_number_of_directories(parts: list[str], steps: list[str]) -> None:
    """Compared with a recursive implementation of the definition."""

    def fits(steps: list[str], parts: list[str]) -> bool:
        if not steps or not parts:
            return not parts and all(step == "**" for step in steps)
        if steps[0] == "**":
            return fits(steps[1:], parts) or fits(steps, parts[1:])
        return GlobPattern.parse(steps[0]).matches(parts[0]) and fits(steps[1:], parts[1:])

    expected = [*steps, "*"] if steps[-1] == "**" else steps
    assert GlobPattern.parse("/".join(steps)).matches("/".join(parts)) == fits(expected, parts)


async def test_walk_is_sorted_and_skips_caches(tmp_path: Path) -> None:
    left_out = [f"{name}/x" for name in (".git", "node_modules", ".venv", "__pycache__", "src/node_modules")]
    _grow(tmp_path, "b", "a/x", "a-b/x", "a/.hidden", *left_out)
    assert await _names(tmp_path) == ["a-b/x", "a/.hidden", "a/x", "b"]
    assert await _names(tmp_path / "node_modules") == ["x"]


async def test_walk_follows_no_link(tmp_path: Path) -> None:
    _grow(tmp_path, "outside/secret", "top/a/x")
    (tmp_path / "top" / "a" / "round").symlink_to("..")
    (tmp_path / "top" / "file").symlink_to("../outside/secret")
    (tmp_path / "top" / "directory").symlink_to("../outside")
    os.mkfifo(tmp_path / "top" / "pipe")
    assert await _names(tmp_path / "top") == ["a/x"]


async def test_ignored_files_of_work_tree_are_listed_only_in_a_named_ignored_directory(tmp_path: Path) -> None:
    git(tmp_path, "init")
    _grow(tmp_path, "a.py", "b.log", "forced.log", "build/x", "build/deep/y", "node_modules/tracked")
    _grow(tmp_path, "src/c.py", "src/d.tmp", "logs/a.log", "gone")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    (tmp_path / "src" / ".gitignore").write_text("*.tmp\n")
    (tmp_path / "none").mkdir()
    git(tmp_path, "add", "a.py", "gone", "node_modules")
    git(tmp_path, "add", "-f", "forced.log")
    (tmp_path / "gone").unlink()
    assert await _names(tmp_path) == [".gitignore", "a.py", "forced.log", "src/.gitignore", "src/c.py"]
    directories = {"src": [".gitignore", "c.py"], "build": ["deep/y", "x"], "build/deep": ["y"], "logs": [], "none": []}
    for directory, names in directories.items():
        assert await _names(tmp_path / directory) == names


async def test_empty_work_tree_has_no_files(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert await _names(tmp_path) == []
    _grow(tmp_path, "a.log")
    (tmp_path / ".git" / "info" / "exclude").write_text("*.log\n")
    assert await _names(tmp_path) == []


@pytest.mark.parametrize("is_outer_a_repository", [True, False])
async def test_nested_repositories_use_their_own_ignore_rules(is_outer_a_repository: bool, tmp_path: Path) -> None:
    _grow(tmp_path, "a.txt", "deep/inner/b.txt", "deep/inner/b.log")
    if is_outer_a_repository:
        git(tmp_path, "init")
    git(tmp_path / "deep" / "inner", "init")
    (tmp_path / "deep" / "inner" / ".gitignore").write_text("*.log\n")
    assert await _names(tmp_path) == ["a.txt", "deep/inner/.gitignore", "deep/inner/b.txt"]


async def test_tracked_directory_replaced_by_link_is_not_followed(tmp_path: Path) -> None:
    _grow(tmp_path, "outside/x", "top/a/x")
    git(tmp_path / "top", "init")
    git(tmp_path / "top", "add", "a")
    (tmp_path / "top" / "a").rename(tmp_path / "top" / "b")
    (tmp_path / "top" / "a").symlink_to("../outside")
    assert await _names(tmp_path / "top") == ["b/x"]


async def test_repository_configuration_runs_no_program(tmp_path: Path) -> None:
    git(tmp_path, "init")
    _grow(tmp_path, "a")
    git(tmp_path, "add", "a")
    hook = tmp_path.parent / f"{tmp_path.name}.hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(hook))
    assert await _names(tmp_path) == ["a"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("variable", "names"), [("GIT_DIR", ["b"]), ("PATH", ["a.log", "b"])], ids=["git hook variable", "without git"]
)
async def test_ignore_rules_hold_in_git_hook_but_not_withoutgit(
    variable: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init")
    _grow(tmp_path, "a.log", "b")
    (tmp_path / ".git" / "info" / "exclude").write_text("*.log\n")
    monkeypatch.setenv(variable, str(tmp_path / "nowhere"))
    assert await _names(tmp_path) == names


async def test_too_large_walk_is_cut_with_note(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_walk, "FILE_LIMIT", 3)
    _grow(workspace.root, "a/1", "b/2", "c/3")
    assert not (await list_files(workspace.root)).is_cut
    _grow(workspace.root, "a/1", "b/2", "c/3", "d/4")
    assert await _names(workspace.root) == ["a/1", "b/2", "c/3"]
    text = (await _glob(workspace, "**/[34]")).text
    assert text == "c/3\n[only 3 files were searched; give a subdirectory as path]"


async def test_cancelled_walk_kills_hanginggit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "ready")
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/ready\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(list_files, tmp_path)
            pid = int(await trio.to_thread.run_sync((tmp_path / "ready").read_text, abandon_on_cancel=True))
            nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(pid)
