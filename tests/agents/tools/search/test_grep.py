"""Tests of the Grep tool with real files."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.search import grep_worker
from coterie.agents.tools.search.grep import Grep
from coterie.agents.tools.search.grep_worker import LARGEST, GrepRequest, search
from coterie.agents.tools.tool import ToolResult, Workspace
from tests.agents.tools.tool_calls import call
from tests.examples import examples

EVIL = "(a+)+$"
"""Takes exponential time for many letters a followed by another character."""


@pytest.fixture
def tree(workspace: Workspace) -> Workspace:
    (workspace.root / "src").mkdir()
    (workspace.root / "src" / "main.py").write_text("import os\n\ndef main():\n    run()\n\ndef Run():\n    pass\n")
    (workspace.root / "src" / "note.txt").write_text("how to run\n")
    (workspace.root / "readme.md").write_text("Run it.\nrun, run\n")
    return workspace


async def _grep(workspace: Workspace, pattern: str, *, time_limit: float = 10, **value: Any) -> ToolResult:
    return await call(Grep(time_limit=time_limit), workspace, pattern=pattern, **value)


async def _content(workspace: Workspace, pattern: str, **value: Any) -> list[str]:
    result = await _grep(workspace, pattern, output_mode="content", **value)
    assert not result.is_error, result.text
    return result.text.split("\n")


@pytest.mark.parametrize(
    ("pattern", "value", "text"),
    [
        ("run", {}, "readme.md\nsrc/main.py\nsrc/note.txt"),
        (r"def \w+\(", {"output_mode": "content"}, "src/main.py:3:def main():\nsrc/main.py:6:def Run():"),
        ("[Rr]un", {"output_mode": "count"}, "readme.md:2\nsrc/main.py:2\nsrc/note.txt:1"),
        (r"^\s+\w", {"output_mode": "count"}, "src/main.py:2"),
        ("DEF RUN", {"ignore_case": True}, "src/main.py"),
        ("DEF RUN", {}, "no line matches 'DEF RUN' (3 files searched)"),
        ("run", {"glob": "*.py"}, "src/main.py"),
        ("run", {"glob": "src/*"}, "src/main.py\nsrc/note.txt"),
        ("run", {"glob": "*.{md,txt}"}, "readme.md\nsrc/note.txt"),
        ("run", {"glob": "*.md", "path": "src"}, "no line matches 'run' (0 files searched)"),
        ("run", {"glob": "*.py", "path": "src"}, "src/main.py"),
    ],
)
async def test_matches_are_sorted_by_path(pattern: str, value: dict[str, Any], text: str, tree: Workspace) -> None:
    assert await _grep(tree, pattern, **value) == ToolResult(text=text)


async def test_ignored_files_are_searched_only_if_named(tree: Workspace) -> None:
    await trio.run_process(["git", "init"], cwd=tree.root, capture_stdout=True, capture_stderr=True)
    (tree.root / ".gitignore").write_text("src/\n")
    assert (await _grep(tree, "run")).text == "readme.md"
    assert (await _grep(tree, "run", path="src")).text == "src/main.py\nsrc/note.txt"
    assert await _content(tree, "run", path="src/note.txt") == ["src/note.txt:1:how to run"]


async def test_paths_outside_project_are_absolute(tree: Workspace) -> None:
    inside = Workspace(root=tree.root / "src", scratch=tree.root)
    assert (await _grep(inside, "it", path="..", glob="*.md")).text == f"{tree.root}/readme.md"
    assert (await _grep(inside, "it", path="../readme.md")).text == f"{tree.root}/readme.md"


async def test_context_lines_differ_from_matches_and_gaps_are_marked(workspace: Workspace) -> None:
    (workspace.root / "a").write_text("x1\n2\n3\n4\n5\nx6\n")
    (workspace.root / "b").write_text("1\nx2\n")
    lines = ["a:1:x1", "a-2-2", "--", "a-5-5", "a:6:x6", "--", "b-1-1", "b:2:x2"]
    assert await _content(workspace, "x", context=1) == lines


@pytest.mark.parametrize("mode", ["files_with_matches", "content", "count"])
async def test_output_is_cut_at_head_limit_with_note(mode: str, workspace: Workspace) -> None:
    for number in range(4):
        (workspace.root / f"f{number}").write_text("x\n")
    cut = (await _grep(workspace, "x", output_mode=mode, head_limit=3)).text.split("\n")
    assert len(cut) == 4
    assert cut[3] == "[cut after 3 lines: narrow the search, or use a larger head_limit]"
    whole = (await _grep(workspace, "x", output_mode=mode, head_limit=4)).text.split("\n")
    assert len(whole) == 4
    assert whole[:3] == cut[:3]
    (workspace.root / "f0").write_text("x\n" * 300)
    by_default = (await _grep(workspace, "x", output_mode=mode)).text
    assert ("[cut after 250 lines" in by_default) == (mode == "content")


async def test_long_line_is_cut_with_note(workspace: Workspace) -> None:
    (workspace.root / "a").write_text("é" * 500 + "\n" + "é" * 2_000 + "x\n")
    whole, cut = await _content(workspace, "é$|x$")
    assert whole == "a:1:" + "é" * 500
    assert cut == "a:2:" + "é" * 500 + " [line cut after 500 of 2,001 characters]"


@pytest.mark.parametrize(
    ("name", "content", "pattern", "lines"),
    [
        ("crlf", b"end\r\n", "^end$", ["crlf:1:end"]),
        ("mark", b"\xef\xbb\xbfend\n", "^end$", ["mark:1:end"]),
        ("latin", b"caf\xe9\nend", "^end$", ["latin:2:end"]),
        ("latin", b"caf\xe9\nend", "caf", ["latin:1:caf\ufffd"]),
        (os.fsdecode(b"a\xff\n"), b"x\n", "x", ["a\ufffd\ufffd:1:x"]),
        ("a", b"[\n", "[[]", ["a:1:["]),
        ("a.bin", b"word\0", "word", ["no line matches 'word' (0 files searched, 1 binary files skipped)"]),
    ],
    ids=["line ends", "byte order mark", "no last newline", "no UTF-8", "file name", "Python warning", "binary"],
)
async def test_text_variants_are_searched(
    name: str, content: bytes, pattern: str, lines: list[str], workspace: Workspace
) -> None:
    (workspace.root / name).write_bytes(content)
    assert await _content(workspace, pattern) == lines


async def test_too_large_and_unreadable_files_are_mentioned(workspace: Workspace) -> None:
    """/proc/PID/mem is a regular file whose first byte cannot be read, even by root."""
    with (workspace.root / "a").open("wb") as file:
        file.truncate(LARGEST + 1)
    (workspace.root / "b").write_text("x\n")
    assert (await _grep(workspace, "x")).text == "b\n[1 files over 256 MB were not searched]"
    result = await _grep(workspace, "x", path=f"/proc/{os.getpid()}/mem")
    assert result.text == "no line matches 'x' (0 files searched)\n[1 files could not be read]"


def test_file_replaced_by_link_or_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "link").symlink_to("secret")
    os.mkfifo(tmp_path / "pipe")
    names = ["link", "pipe", "gone"]
    files = [(str(tmp_path / name), name) for name in names]
    finding = search(GrepRequest(pattern="x", ignore_case=False, mode="content", context=0, limit=9, files=files))
    assert (finding.lines, finding.searched, finding.unreadable) == ([], 0, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"pattern": "ab(c"}, "correct it: missing ), unterminated subpattern at position 2"),
        ({"pattern": "abc["}, "correct it: unterminated character set at position 3"),
        ({"pattern": "*"}, "correct it: nothing to repeat at position 0"),
        ({"pattern": "a{99999999999999}"}, "repetition number is too large"),
        ({"pattern": "(" * 5_000 + ")" * 5_000}, "recursion"),
        ({"context": -1}, "context is -1"),
        ({"context": 101}, "from 0 to 100"),
        ({"head_limit": 0}, "head_limit is 0"),
        ({"head_limit": 10_001}, "from 1 to 10,000"),
        ({"path": "nowhere"}, "nowhere cannot be searched: No such file"),
        ({"path": "pipe"}, "neither a regular file nor a directory"),
        ({"glob": "{a"}, "without a matching }"),
        ({"output_mode": "lines"}, "'files_with_matches', 'content', 'count'"),
    ],
)
async def test_invalid_arguments_are_refused(value: dict[str, Any], words: str, workspace: Workspace) -> None:
    os.mkfifo(workspace.root / "pipe")
    result = await _grep(workspace, **{"pattern": "x", **value})
    assert result.is_error
    assert words in result.text


@pytest.mark.slow
async def test_exponential_expression_is_stopped_at_time_limit(workspace: Workspace) -> None:
    (workspace.root / "a").write_text("a" * 60 + "b\n")
    result = await _grep(workspace, EVIL, time_limit=0.4)
    assert result.is_error
    assert "stopped after 0.4 s" in result.text


@pytest.mark.slow
async def test_cancelled_search_kills_worker(workspace: Workspace) -> None:
    (workspace.root / "a").write_text("a" * 60 + "b\n")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_grep, workspace, EVIL))
            while not (workers := _workers()):  # noqa: ASYNC110 - no event tells of a started process
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert not any(worker.is_running() for worker in workers)


def _workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    try:
        return grep_worker.__file__ in child.cmdline()
    except psutil.NoSuchProcess:  # of another test, and not reaped yet
        return False


@pytest.mark.slow
def test_worker_ends_itself_after_its_lifetime() -> None:
    """The worker first sets an alarm; here the patched alarm exits immediately with its seconds as the exit code."""
    run = f"runpy.run_path({grep_worker.__file__!r}, run_name='__main__')"
    script = f"import runpy, signal; signal.alarm = lambda s: exit(s); {run}"
    assert subprocess.run([sys.executable, "-I", "-c", script], check=False).returncode == 60


@examples(40)
@given(lines=st.lists(st.sampled_from(["x", "", "y", "-"]), max_size=14), context=st.integers(0, 3))
def test_context_shows_each_line_near_a_match_once(
    lines: list[str], context: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    order = GrepRequest(
        pattern="x", ignore_case=False, mode="content", context=context, limit=99, files=[(str(path), "f")]
    )
    matches = {number for number, line in enumerate(lines, 1) if line == "x"}
    near = [n for n in range(1, len(lines) + 1) if any(abs(n - match) <= context for match in matches)]
    expected: list[str] = []
    for before, number in zip([None, *near], near, strict=False):
        if context and before is not None and number > before + 1:
            expected.append("--")
        sign = ":" if number in matches else "-"
        expected.append(f"f{sign}{number}{sign}{lines[number - 1]}")
    assert search(order).lines == expected
