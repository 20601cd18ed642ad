"""Tests of the Read tool with text files, and of the tracking of read file versions."""

import contextlib
import os
import re
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.token_estimate import estimate_text
from coterie.agents.tools.files.read import EMPTY, NOT_UTF8, TOKEN_LIMIT, Read
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import FILE_LIMIT, LARGEST, ReadFiles
from tests.agents.tools.tool_calls import call, refusal
from tests.examples import examples

_read, _refusal = partial(call, Read()), partial(refusal, Read())


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", EMPTY),
        (b"one\n", "     1\tone"),
        (b"one\n\n\ttwo\r\nlast", "     1\tone\n     2\t\n     3\t\ttwo\r\n     4\tlast"),
        (b"caf\xe9\nplain\n", f"{NOT_UTF8}\n     1\tcaf\ufffd\n     2\tplain"),
    ],
)
async def test_lines_are_numbered(content: bytes, shown: str, workspace: Workspace) -> None:
    path = workspace.root / "a.txt"
    path.write_bytes(content)
    assert await _read(workspace, file_path="a.txt") == ToolResult(text=shown)
    elsewhere = Workspace(root=workspace.root / "elsewhere", scratch=workspace.root)
    assert await _read(elsewhere, file_path=str(path)) == ToolResult(text=shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"offset": 3, "limit": 2}, "     3\tl3\n     4\tl4"),
        ({"offset": 9, "limit": 50}, "     9\tl9"),
        ({"offset": 10}, "has only 9 lines, so reduce offset=10"),
        ({"offset": 0}, "counted from 1"),
        ({"limit": 0}, "must be at least 1"),
    ],
)
async def test_range_shows_only_its_lines(value: dict[str, int], shown: str, workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("".join(f"l{n}\n" for n in range(1, 10)))
    result = await _read(workspace, file_path="a.txt", **value)
    assert (shown in result.text) if result.is_error else (shown == result.text)


async def test_missing_file_is_refused_with_similar_names_or_directory(workspace: Workspace) -> None:
    (workspace.root / "src").mkdir()
    (workspace.root / "src" / "Main.py").touch()
    (workspace.root / "src" / os.fsdecode(b"main\xff.py")).touch()
    reason = await _refusal(workspace, file_path="src/man.py")
    assert reason == f"src/man.py does not exist; did you mean Main.py in {workspace.root / 'src'}?"
    reason = await _refusal(workspace, file_path="lib/main.py")
    assert reason.endswith(f"neither does the directory {workspace.root / 'lib'}")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("a.bin/b", "a.bin/b does not exist"),
        (".", "is a directory"),
        ("pipe", "not a regular file"),
        ("/proc/self/mem", "cannot be read: Input/output error"),
        ("x" * 300, "cannot be read: File name too long"),
        ("a.bin", "is a binary file"),
    ],
    ids=["path through file", "directory", "pipe", "unreadable", "too long name", "binary"],
)
async def test_unusable_path_is_refused_without_blocking(path: str, reason: str, workspace: Workspace) -> None:
    """/proc/PID/mem is a regular file whose first byte cannot be read, even by root."""
    (workspace.root / "a.bin").write_bytes(b"x" * 8191 + b"\0")
    os.mkfifo(workspace.root / "pipe")
    with trio.fail_after(5):
        assert reason in await _refusal(workspace, file_path=path)


async def test_large_file_requires_range_and_is_recorded_up_to_a_limit(workspace: Workspace) -> None:
    path = workspace.root / "a.txt"
    for size, told in ((262_160, "262,160 bytes; over 256 KB"), (LARGEST + 16, "offset and limit")):
        path.write_bytes(b"0123456789abcde\n" * (size // 16))
        assert told in await _refusal(workspace, file_path="a.txt")
        assert (await _read(workspace, file_path="a.txt", limit=1)).text == "     1\t0123456789abcde"
        with contextlib.nullcontext() if size < LARGEST else pytest.raises(ToolFailed, match="has changed"):
            workspace.seen.check(path)


async def test_range_with_too_many_tokens_is_refused_with_fitting_range(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("word " * 20 + "\n" + "another line of words\n" * 9_000)
    reason = await _refusal(workspace, file_path="a.txt")
    match = re.search(r"over 25,000 tokens.* offset=1 and limit=(\d+)", reason)
    assert match is not None, reason
    fitting = int(match[1])
    assert f"{fitting:,} lines fit" in reason
    shown = await _read(workspace, file_path="a.txt", limit=fitting)
    assert not shown.is_error
    assert TOKEN_LIMIT * 0.8 < estimate_text(shown.text) <= TOKEN_LIMIT
    assert (await _read(workspace, file_path="a.txt", limit=fitting + 1)).is_error


async def test_long_line_is_cut_between_characters(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("é" * 100_000 + "\n" + "x" * 2_000 + "\n" + "y" * 2_001)
    cut, whole, over = (await _read(workspace, file_path="a.txt", offset=1, limit=3)).text.split("\n")
    assert cut == "     1\t" + "é" * 2_000 + " [line cut after 2,000 characters; it has 200,000 bytes]"
    assert whole == "     2\t" + "x" * 2_000
    assert over == "     3\t" + "y" * 2_000 + " [line cut after 2,000 characters; it has 2,001 bytes]"


@examples(60)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\0", codec="utf-8"), max_size=20), min_size=1),
    repeat=st.sampled_from([1, 1, 700]),
    has_end=st.booleans(),
)
def test_any_text_is_shown_line_by_line(
    lines: list[str], repeat: int, has_end: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Lines of all lengths around LINE_BYTES."""
    lines = [(line * repeat)[:2_000] for line in lines[:8]]
    root = tmp_path_factory.getbasetemp()
    expected = lines if has_end else [*lines, "end"]
    (root / "drawn.txt").write_bytes(("\n".join(expected) + "\n" * has_end).encode())
    shown = trio.run(partial(_read, Workspace(root=root, scratch=root), file_path="drawn.txt")).text
    assert shown == "\n".join(f"{number:6}\t{line}" for number, line in enumerate(expected, 1))


_read_file = partial(call, Read(), file_path="a.txt")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    return path


def test_changed_file_must_be_read_again(path: Path) -> None:
    """A change is also detected if time and size are the same; a touched file is no changed one."""
    seen = ReadFiles()
    seen.record(path, b"one\n")
    os.utime(path, ns=(1, 1))
    seen.check(path)
    path.write_text("two\n")
    with pytest.raises(ToolFailed, match=r"has changed since it was read\. Read it again"):
        seen.check(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path)
    seen.record(path, b"two\n")
    seen.check(path)
    with pytest.raises(ToolFailed, match="has changed"):
        seen.check(path, b"given instead of the file")
    path.unlink()
    seen.check(path, b"two\n")


def test_oldest_file_is_forgotten_and_not_taken_over_limit() -> None:
    seen = ReadFiles()
    for number in range(FILE_LIMIT):
        seen.record(Path(f"/{number}"), b"")
    seen.record(Path("/0"), b"again")
    seen.record(Path("/new"), b"")
    seen.check(Path("/0"), b"again")
    seen.check(Path("/2"), b"")
    with pytest.raises(ToolFailed, match="not been read"):
        seen.check(Path("/1"), b"")
    taken = seen.take_changes()
    assert (len(taken), "/1" in taken) == (FILE_LIMIT, False)


def test_changes_are_taken_once_and_can_be_restored(path: Path) -> None:
    seen, resumed = ReadFiles(), ReadFiles()
    seen.record(Path("/other"), b"")
    seen.record(path, b"old\n")
    seen.record(path, b"one\n")
    drained = seen.take_changes()
    assert list(drained) == ["/other", str(path)]
    resumed.restore(drained)
    resumed.check(path)
    with pytest.raises(ToolFailed, match="has changed"):
        resumed.check(path, b"old\n")
    for each in (seen, resumed):
        each.record(path, b"one\n")
        assert each.take_changes() == {}
    latin = Path(os.fsdecode(b"/caf\xe9"))
    seen.record(latin, b"")
    seen.check(latin, b"")
    assert seen.take_changes() == {}, "a path that is not UTF-8 cannot be recorded"


async def test_file_shown_by_read_is_recorded_for_its_agent_alone(path: Path, workspace: Workspace) -> None:
    other = Workspace(root=path.parent, scratch=path.parent)
    assert (await _read_file(workspace, offset=5)).is_error
    with trio.CancelScope() as scope:
        scope.cancel()
        await _read_file(workspace)
    with pytest.raises(ToolFailed, match="not been read"):
        workspace.seen.check(path)
    for each, value in ((workspace, {}), (other, {"offset": 1, "limit": 1})):
        with pytest.raises(ToolFailed, match="not been read"):
            each.seen.check(path)
        assert not (await _read_file(each, **value)).is_error
        each.seen.check(path)
