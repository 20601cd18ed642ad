"""Tests of the Write and Edit tools."""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import assume, given
from hypothesis import strategies as st

from coterie.agents.tools.files.edit import COMPARED, SHOWN, WIDTH, Edit
from coterie.agents.tools.files.write import Write
from coterie.agents.tools.schema import parse_input
from coterie.agents.tools.tool import Tool, ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import LARGEST
from coterie.files import Operation, file_faults
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import pdf
from tests.agents.tools.tool_calls import call, refusal, seen_file
from tests.examples import examples
from tests.seeded_faults import SeededFaults

CHANGES: dict[str, tuple[Tool, dict[str, Any]]] = {
    "Write": (Write(), {"content": "new\n"}),
    "Edit": (Edit(), {"old_string": "old", "new_string": "new"}),
}
"""Tools, with arguments that make "new" of "old"."""

each_tool = pytest.mark.parametrize(("tool", "change"), CHANGES.values(), ids=CHANGES)

_write, _refusal = partial(call, Write()), partial(refusal, Write(), content="new")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ("", "0 lines, 0 bytes"),
        ("é", "1 line, 2 bytes"),
        ("\n", "1 line, 1 byte"),
        ("one\r\ntwo\n", "2 lines, 9 bytes"),
        ("one\n\nthree", "3 lines, 10 bytes"),
    ],
)
async def test_new_file_has_exactly_the_content(content: str, size: str, workspace: Workspace) -> None:
    """Missing directories are created, and the mode follows the umask."""
    before = os.umask(0o027)
    try:
        result = await _write(workspace, file_path="src/deep/a.txt", content=content)
    finally:
        os.umask(before)
    assert result == ToolResult(text=f"wrote src/deep/a.txt: {size} (created)")
    path = workspace.root / "src/deep/a.txt"
    assert (path.read_bytes(), _mode(path)) == (content.encode(), 0o640)


async def test_read_file_is_replaced_and_written_one_counts_as_read(workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    result = await _write(workspace, file_path="a.txt", content="new\n")
    assert result == ToolResult(text="wrote a.txt: 1 line, 4 bytes (replaced)")
    assert not (await _write(workspace, file_path="a.txt", content="three")).is_error
    assert path.read_text() == "three"


@each_tool
async def test_unread_or_changed_file_is_not_changed(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("old")
    assert "Read it first" in await refusal(tool, workspace, file_path="a.txt", **change)
    path = await seen_file(workspace, "old\n")
    path.write_text("old 2")
    assert "changed since it was read" in await refusal(tool, workspace, file_path="a.txt", **change)
    assert path.read_text() == "old 2"


@each_tool
async def test_link_and_mode_of_its_target_are_kept(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    path.chmod(0o751)
    (workspace.root / "link").symlink_to("a.txt")
    arguments = parse_input(tool.input_type, {"file_path": "link", **change})
    assert tool.paths_affected(arguments, workspace) == [path]
    assert not (await call(tool, workspace, file_path="link", **change)).is_error
    assert (workspace.root / "link").is_symlink()
    assert (path.read_text(), _mode(path)) == ("new\n", 0o751)


async def test_dangling_link_is_kept_and_target_created(workspace: Workspace) -> None:
    (workspace.root / "link").symlink_to("a.txt")
    assert not (await _write(workspace, file_path="link", content="new")).is_error
    assert (workspace.root / "link").is_symlink()
    assert (workspace.root / "a.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "is a directory"),
        ("pipe", "not a regular file"),
        ("a.txt/b", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("huge", "8,388,609 bytes, over the limit of 8 MB"),
    ],
    ids=["directory", "pipe", "path through file", "too long name", "huge"],
)
async def test_unusable_path_is_refused_without_blocking(path: str, reason: str, workspace: Workspace) -> None:
    (workspace.root / "a.txt").touch()
    os.mkfifo(workspace.root / "pipe")
    with (workspace.root / "huge").open("wb") as file:
        file.truncate(LARGEST + 1)
    with trio.fail_after(5):
        assert reason in await _refusal(workspace, file_path=path)


@each_tool
async def test_read_only_file_is_refused(tool: Tool, change: dict[str, Any], workspace: Workspace) -> None:
    path = await seen_file(workspace, "old\n")
    path.chmod(0o444)
    assert "a.txt is read-only" in await refusal(tool, workspace, file_path="a.txt", **change)
    assert path.read_text() == "old\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"caf\xe9\n", "not valid UTF-8 (byte 3)"), (png(), "not valid UTF-8"), (pdf(), "not valid UTF-8")],
    ids=["text", "image", "PDF"],
)
async def test_binary_file_counts_as_read_but_is_refused(content: bytes, reason: str, workspace: Workspace) -> None:
    path = await seen_file(workspace, content)
    assert reason in await _refusal(workspace, file_path="a.txt")
    assert path.read_bytes() == content


async def test_unpaired_surrogate_is_refused_without_write(workspace: Workspace) -> None:
    assert "character 2 of the new text" in await _refusal(workspace, file_path="a.txt", content=f"ok{chr(0xD800)}")
    assert not (workspace.root / "a.txt").exists()


@each_tool
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("full", "No space left"), ("torn", "only "), ("rename", "Input/output error"), ("fsync", "Input/output")],
)
async def test_failed_write_is_reported_and_keeps_old_file(
    tool: Tool, change: dict[str, Any], fault: str, reason: str, workspace: Workspace
) -> None:
    path = await seen_file(workspace, "old\n")
    with file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})):
        told = await refusal(tool, workspace, file_path="a.txt", **change)
        assert f"a.txt could not be written: {reason}" in told
        assert "could not be written" in await _refusal(workspace, file_path="b.txt")
    assert path.read_text() == "old\n"
    assert os.listdir(workspace.root) == ["a.txt"]  # noqa: PTH208 - names only
    assert not (await call(tool, workspace, file_path="a.txt", **change)).is_error


@each_tool
async def test_started_write_completes_although_cancelled(
    tool: Tool, change: dict[str, Any], workspace: Workspace
) -> None:
    """The fault hook cancels the call in the middle of the write."""

    class Cancelling:
        def before(self, operation: Operation, path: Path, size: int) -> int:  # noqa: ARG002 - the interface of a hook
            if operation == "rename":
                trio.from_thread.run_sync(scope.cancel)
            return size

    path = await seen_file(workspace, "old\n")
    with trio.CancelScope() as scope, file_faults(Cancelling()):
        result = await call(tool, workspace, file_path="a.txt", **change)
    assert scope.cancel_called
    assert not result.is_error
    assert path.read_text() == "new\n"
    workspace.seen.check(path)


async def _edit(workspace: Workspace, old: str, new: str, **value: Any) -> ToolResult:
    value = {"file_path": "a.txt", "old_string": old, "new_string": new, **value}
    return await call(Edit(), workspace, **value)


async def _edit_refusal(workspace: Workspace, old: str, new: str = "new", **value: Any) -> str:
    result = await _edit(workspace, old, new, **value)
    assert result.is_error
    return result.text


def _numbered(first: int, *lines: str) -> str:
    return "".join(f"\n{number:6}\t{line}" for number, line in enumerate(lines, first))


EDITS: dict[str, tuple[str, str, str, str, str]] = {
    "middle": ("1\n2\n3\n4\n5\n6\n7\n", "5\n", "a\nb\n", "1\n2\n3\n4\na\nb\n6\n7\n", _numbered(2, *"234ab67")),
    "start": ("a\n1\n2\n3\n4\n5\n", "a\n", "", "1\n2\n3\n4\n5\n", _numbered(1, *"1234")),
    "part of a line": ("x = old(1)", "old(", "new(", "x = new(1)", _numbered(1, "x = new(1)")),
    "everything": ("x = old(1)", "x = old(1)", "", "", ""),
    "byte order mark": ("\ufeffold\n", "old", "new", "\ufeffnew\n", _numbered(1, "\ufeffnew")),
}
"""Case -> text of the file, old_string, new_string, text afterwards, shown lines."""


@pytest.mark.parametrize(("text", "old", "new", "edited", "shown"), EDITS.values(), ids=EDITS)
async def test_change_is_shown_with_surrounding_lines(
    text: str, old: str, new: str, edited: str, shown: str, workspace: Workspace
) -> None:
    path = await seen_file(workspace, text)
    assert await _edit(workspace, old, new) == ToolResult(text=f"edited a.txt: 1 replacement{shown}")
    assert path.read_bytes().decode() == edited


async def test_replace_all_replaces_every_occurrence(workspace: Workspace) -> None:
    path = await seen_file(workspace, "a b\na\nb a\n")
    result = await _edit(workspace, "a", "aa", replace_all=True)
    assert result.text.startswith("edited a.txt: 3 replacements\n     1\taa b\n")
    assert path.read_text() == "aa b\naa\nb aa\n"


async def test_long_change_is_shown_in_part(workspace: Workspace) -> None:
    await seen_file(workspace, "here\n")
    _, *lines = (await _edit(workspace, "here", f"{'x' * 1000}\n" * 100)).text.split("\n")
    assert len(lines) == SHOWN
    assert lines[0] == "     1\t" + "x" * WIDTH


@pytest.mark.parametrize(
    ("text", "old", "new", "edited"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "a\nb", "a\nb\r\n"),
        ("a\r\nb\r\n", "a\n", "", "b\r\n"),
        ("a\nb\r\nc\r\n", "a\nb", "x\ny", "x\ny\r\nc\r\n"),
        ("a\nb\r\nc\r\n", "b\nc", "x\ny", "a\nx\r\ny\r\n"),
        ("a\nb\n", "a\r\n", "x", None),
    ],
)
async def test_line_ends_of_file_are_used(
    text: str, old: str, new: str, edited: str | None, workspace: Workspace
) -> None:
    path = await seen_file(workspace, text)
    assert (await _edit(workspace, old, new)).is_error == (edited is None)
    assert path.read_bytes().decode() == (text if edited is None else edited)


@pytest.mark.parametrize(("old", "new"), [("old", "old"), ("a\n", "a\r\n")])
async def test_edit_without_change_is_refused(old: str, new: str, workspace: Workspace) -> None:
    await seen_file(workspace, "a\r\nold\r\n")
    assert "nothing would change" in await _edit_refusal(workspace, old, new)


NOT_FOUND: dict[str, tuple[str, str, str]] = {
    "empty": ("", "", "old_string is empty"),
    "other white space": (
        "\n\n\tif x:\n\t\ty\n",
        "    if x:\n        y\n",
        "white space from the text that begins on line 3",
    ),
    "similar": ("a\n\nb = one(two, six)\nc\n", "a\n\nb = one(tow, six)", "line is 3:\n     3\tb = one(two, six)"),
    "repetitive": ("other\n" + "0, 1, " * 60 + "\n", "2, 2, " + "0, 1, " * 50, "the most similar line is 2:"),
    "dissimilar": ("import\n", "zzz", "No line of the file is similar to it"),
    "newlines": ("import\n", "\n\n\n", "No line of the file is similar to it"),
    "space": ("import\n", " ", "No line of the file is similar to it"),
    "surrogate": ("import\n", chr(0xD800), "No line of the file is similar to it"),
    "many matches": ("x\n" * 2_000, "x", "2,000 times in a.txt, on lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more."),
    "several": ("x\ny x\n\nx\n", "x", "occurs 3 times in a.txt, on lines 1, 2, 4."),
    "overlapping": ("\nababa\n", "aba", "occurs 2 times in a.txt, on lines 2, 2."),
}
"""Case -> text of the file, old_string, part of the refusal."""


@pytest.mark.parametrize(("text", "old", "reason"), NOT_FOUND.values(), ids=NOT_FOUND)
async def test_unclear_old_string_is_refused_with_place(text: str, old: str, reason: str, workspace: Workspace) -> None:
    path = await seen_file(workspace, text)
    told = await _edit_refusal(workspace, old)
    assert reason in told
    assert ("replace_all" in told) == (" times in a.txt" in reason)
    assert path.read_text() == text


async def test_edit_that_exceeds_size_limit_is_refused(workspace: Workspace) -> None:
    path = await seen_file(workspace, "x" * 10_000)
    assert "a.txt exceed 8 MB" in await _edit_refusal(workspace, "x", "y" * 1_000_000, replace_all=True)
    assert path.read_text() == "x" * 10_000


@pytest.mark.slow
async def test_closest_line_is_found_in_bounded_time(workspace: Workspace) -> None:
    """Long similar lines are the worst case; lines after the limit are not compared."""
    lines = (f"value_{n} = compute({'first, second, ' * 15})\n" for n in range(3 * COMPARED))
    await seen_file(workspace, "".join(lines))
    with trio.fail_after(20):
        refusal = await _edit_refusal(workspace, f"valeu_77 = compute({'first, second, ' * 15})")
    assert "the most similar line is 78:\n    78\tvalue_77 = " in refusal


def _texts(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(st.sampled_from(alphabet) | st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=40)


@st.composite
def _edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw a text, a part that occurs once, and a replacement."""
    text = draw(_texts("ab \n"))
    assume(text)
    begin = draw(st.integers(0, len(text) - 1))
    old = text[begin : draw(st.integers(begin + 1, len(text)))]
    assume(text.find(old, text.find(old) + 1) < 0)
    new = draw(_texts("ab \n"))
    assume(new != old)
    return text, old, new


async def _edited(workspace: Workspace, text: str, old: str, new: str) -> str:
    path = await seen_file(workspace, text)
    result = await _edit(workspace, old, new)
    assert not result.is_error, result.text
    return path.read_bytes().decode()


@pytest.mark.slow
@examples(40)
@given(_edits(), st.booleans())
def test_edit_is_exactly_one_replacement(
    tmp_path_factory: pytest.TempPathFactory, edit: tuple[str, str, str], has_carriage_returns: bool
) -> None:
    """The file may have either line end, although the model writes plain newlines."""
    text, old, new = edit
    assume("\n" in text or not has_carriage_returns)
    end = "\r\n" if has_carriage_returns else "\n"
    root = tmp_path_factory.getbasetemp()
    edited = trio.run(_edited, Workspace(root=root, scratch=root), text.replace("\n", end), old, new)
    assert edited == text.replace(old, new).replace("\n", end)
