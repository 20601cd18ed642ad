"""Instruction files: order, includes, and tolerance of unusable entries."""

import os
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.instructions import loader
from coterie.memory.instructions.includes import IncludeReference, find_includes
from coterie.memory.instructions.loader import (
    LONG,
    PROJECT_NAMES,
    SIZE_LIMIT,
    InstructionPaths,
    Instructions,
    load_instructions,
)
from tests.examples import examples


@pytest.fixture
def places(tmp_path: Path) -> InstructionPaths:
    places = InstructionPaths(
        managed=tmp_path / "managed",
        home=tmp_path / "user/.coterie",
        project=tmp_path / "repo",
        working=tmp_path / "repo/src/part",
    )
    for directory in (places.managed, places.home, places.working, tmp_path / "elsewhere"):
        directory.mkdir(parents=True)
    return places


def _write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        (root / f"{name}.md").write_text(text)


def _grow(root: Path, *names: str) -> None:
    """Create files that contain their own names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name} says\n")


def _load(places: InstructionPaths, *approved: Path) -> Instructions:
    return load_instructions(places, lambda path: path in approved)


def _names(loaded: Instructions) -> list[str]:
    return [file.path.name for file in loaded.files]


def _reasons(loaded: Instructions) -> list[str]:
    return [note.reason for note in loaded.notes]


def test_files_are_ordered_from_general_to_specific(places: InstructionPaths, tmp_path: Path) -> None:
    nested = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", ".claude/rules/a.md", ".claude/rules/b.md")
    private = ("CLAUDE.local.md", "AGENTS.local.md")
    flat = ("CLAUDE.md", "AGENTS.md", "rules/1.md", "rules/2.md")
    expected = [
        *(("managed", places.managed / name) for name in flat),
        *(("user", places.home / name) for name in flat),
    ]
    for directory in (places.project, places.project / "src", places.working):
        expected += [("project", directory / name) for name in nested]
        expected += [("private", directory / name) for name in private]
    for _, path in reversed(expected):
        _grow(path.parent, path.name)
    _grow(tmp_path, "CLAUDE.md", "repo/src/other/CLAUDE.md", "repo/.claude/rules/not-markdown.txt")
    loaded = _load(places)
    assert [(file.scope, file.path) for file in loaded.files] == expected
    assert not loaded.notes


def test_no_files_give_an_empty_text(places: InstructionPaths) -> None:
    missing = attrs.evolve(places, managed=places.managed / "no", home=places.home / "no")
    assert _load(missing) == Instructions(files=(), notes=(), unapproved=())
    assert not _load(missing).to_text()


def test_working_directory_outside_the_project_is_read_too(places: InstructionPaths, tmp_path: Path) -> None:
    _grow(tmp_path, "repo/CLAUDE.md", "elsewhere/CLAUDE.md", "CLAUDE.md")
    loaded = _load(attrs.evolve(places, working=tmp_path / "elsewhere"))
    assert [file.path.parent.name for file in loaded.files] == ["repo", "elsewhere"]


def test_file_reached_twice_keeps_its_first_position(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="@AGENTS.md first", AGENTS="shared")
    (places.project / ".claude").mkdir()
    (places.project / ".claude/CLAUDE.md").symlink_to("../AGENTS.md")
    loaded = _load(places)
    assert [(file.path.name, file.included_by) for file in loaded.files] == [
        ("AGENTS.md", places.project / "CLAUDE.md"),
        ("CLAUDE.md", None),
    ]


def test_include_precedes_its_file_and_shares_its_scope(places: InstructionPaths) -> None:
    (places.project / "docs").mkdir()
    _write(places.project / "docs", style="style, see @deeper.md.", deeper="deeper")
    (places.project / "CLAUDE.local.md").write_text("Read @docs/style.md, then begin.")
    loaded = _load(places)
    assert _names(loaded) == ["deeper.md", "style.md", "CLAUDE.local.md"]
    assert {file.scope for file in loaded.files} == {"private"}
    assert loaded.files[2].text == "Read @docs/style.md, then begin."


def test_include_may_be_absolute_or_in_the_home_directory(
    places: InstructionPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    _write(places.project, absolute="a")
    _write(places.home, CLAUDE="@~/.coterie/mine.md", mine="m")
    _write(places.project, CLAUDE=f"@{places.project}/absolute.md @~nobody/x.md")
    assert _names(_load(places)) == ["mine.md", "CLAUDE.md", "absolute.md", "CLAUDE.md"]


@pytest.mark.parametrize(
    "text",
    [
        "me@there.md",
        "`@there.md`",
        "`` ` @there.md ``",
        "`a span\nover @there.md lines`",
        "```\n@there.md\n```",
        "- ```python\n  @there.md\n  ```",
        "~~~~\n```\n@there.md\n~~~\n~~~~",
        "> ```\n> @there.md",
        "```\nnever closed\n\n@there.md",
        "@dir @dir/ @. @~ @/ @missing.md @scope/package @dataclass(frozen=True) @",
        f"@{'x' * 5_000}",
        "@\u202e.md @😀",
    ],
)
def test_code_and_missing_files_are_not_included(places: InstructionPaths, text: str) -> None:
    _write(places.project, there="no", CLAUDE=text)
    (places.project / "dir").mkdir()
    loaded = _load(places)
    assert (_names(loaded), loaded.notes) == (["CLAUDE.md"], ())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("@there.md", 1),
        ("- @there.md", 1),
        ("a lone ` and\n\t@there.md!", 2),
        ("`code`\n\nopen ` tick\n\n@there.md and ` another", 5),
        ("```\ncode\n```\n**see** @there.md**", 4),
        ("```not``` a fence\n@there.md", 2),
        ("~~~\n```\n~~~\r\n@there.md\r\n", 4),
        ("````\n```\n````\n(see) @./there.md)", 4),
    ],
)
def test_include_in_prose_is_loaded(places: InstructionPaths, text: str, line: int) -> None:
    _write(places.project, there="yes")
    (places.project / "CLAUDE.md").write_bytes(text.encode())
    assert _names(_load(places)) == ["there.md", "CLAUDE.md"]
    assert [include.line for include in find_includes(text)] == [line]


def test_escaped_space_belongs_to_an_include_path() -> None:
    assert find_includes(r"@my\ notes.md x") == [IncludeReference(1, "my notes.md")]


@examples(60)
@given(st.text(alphabet="`~ @a\n>-.\\\r", max_size=200))
def test_includes_of_any_text_have_correct_line_numbers(text: str) -> None:
    lines = text.split("\n")
    for include in find_includes(text):
        assert "@" + include.path.replace(" ", "\\ ") in lines[include.line - 1]


def test_includes_are_loaded_up_to_depth_four(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="@1.md", **{str(n): f"@{n + 1}.md" for n in range(1, 6)})
    loaded = _load(places)
    assert _names(loaded) == ["4.md", "3.md", "2.md", "1.md", "CLAUDE.md"]
    (note,) = loaded.notes
    assert str(note) == f"{places.project}/4.md:1: @5.md is left out: it is more than 4 includes deep"


def test_cyclic_includes_end(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="@CLAUDE.md @a.md", a="@b.md", b="@a.md @CLAUDE.md")
    assert _names(_load(places)) == ["b.md", "a.md", "CLAUDE.md"]


def test_include_outside_the_project_needs_approval(places: InstructionPaths, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere/secret.md"
    outside.write_text("secret")
    _write(places.project, CLAUDE=f"first\n@{outside}")
    loaded = _load(places)
    assert (_names(loaded), loaded.unapproved) == (["CLAUDE.md"], (outside,))
    (note,) = loaded.notes
    assert (note.path, note.line) == (places.project / "CLAUDE.md", 2)
    assert str(outside) in note.reason
    assert "approve" in note.reason
    assert _names(_load(places, outside)) == ["secret.md", "CLAUDE.md"]


def test_approval_does_not_cover_nested_includes(places: InstructionPaths, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    _write(outside, one="@two.md", two="2")
    _write(places.project, CLAUDE="@../elsewhere/one.md")
    loaded = _load(places, outside / "one.md")
    assert (_names(loaded), loaded.unapproved) == (["one.md", "CLAUDE.md"], (outside / "two.md",))


def test_links_are_resolved_before_the_scope_check(places: InstructionPaths, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere/secret.md"
    outside.write_text("secret")
    (places.project / "inside.md").symlink_to(outside)
    (places.project / "AGENTS.md").symlink_to(outside)
    (places.project / "src/up").symlink_to("../..")
    _write(places.project, CLAUDE="@inside.md @src/up/elsewhere/secret.md")
    loaded = _load(places)
    assert (_names(loaded), loaded.unapproved, len(loaded.notes)) == (["CLAUDE.md"], (outside,), 3)


def test_repository_cannot_include_files_of_the_user(places: InstructionPaths) -> None:
    _write(places.home, private="p")
    _write(places.project, CLAUDE=f"@{places.home}/private.md")
    assert _load(places).unapproved == (places.home / "private.md",)


def test_user_instruction_file_may_be_a_link(places: InstructionPaths, tmp_path: Path) -> None:
    _grow(tmp_path, "elsewhere/dotfile.md")
    (places.home / "CLAUDE.md").symlink_to(tmp_path / "elsewhere/dotfile.md")
    loaded = _load(places)
    assert [file.path for file in loaded.files] == [places.home / "CLAUDE.md"]


def test_long_file_is_loaded_whole_with_a_warning(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="x" * LONG, AGENTS="y" * (LONG + 1))
    loaded = _load(places)
    assert [len(file.text) for file in loaded.files] == [LONG, LONG + 1]
    (note,) = loaded.notes
    assert (note.path.name, note.line) == ("AGENTS.md", None)
    assert "40,001" in note.reason


def test_binary_file_is_left_out_with_a_warning(places: InstructionPaths) -> None:
    contents = {"nul": b"a\0b", "latin": b"caf\xe9", "huge": b"x" * (SIZE_LIMIT + 1), "utf-16": "a".encode("utf-16")}
    (places.project / ".claude/rules").mkdir(parents=True)
    for name, content in contents.items():
        (places.project / f".claude/rules/{name}.md").write_bytes(content)
    _write(places.project, CLAUDE="@.claude/rules/nul.md kept", AGENTS="\ufeffbom")
    loaded = _load(places)
    assert [file.text for file in loaded.files] == ["@.claude/rules/nul.md kept", "bom"]
    assert {note.path.stem: note.reason for note in loaded.notes} == {
        "nul": "is left out: it is not text: it holds a NUL",
        "latin": "is left out: it is not text in UTF-8",
        "huge": "is left out: it is larger than 1,000,000 bytes",
        "utf-16": "is left out: it is not text in UTF-8",
    }


def test_unusable_entries_do_not_stop_the_others(places: InstructionPaths) -> None:
    """A directory, a pipe without writer, a link loop, a dangling link, and a file in place of a directory."""
    project = places.project
    (project / "CLAUDE.md").mkdir()
    os.mkfifo(project / "AGENTS.md")
    (project / "CLAUDE.local.md").symlink_to("CLAUDE.local.md")
    (project / "AGENTS.local.md").symlink_to("nothing.md")
    (project / ".claude").touch()
    (project / "src/.claude").mkdir()
    (project / "src/.claude/rules").symlink_to("rules")
    _write(places.working, CLAUDE="@../../AGENTS.md still here")
    loaded = _load(places)
    assert [file.text for file in loaded.files] == ["@../../AGENTS.md still here"]
    assert _reasons(loaded) == [
        "is left out: it is not a regular file",
        "is left out: it is not a regular file",
        "cannot be read: Too many levels of symbolic links",
        "is a link to nothing",
        "cannot be listed: Too many levels of symbolic links",
    ]


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(),
    reason="needs /proc/self/mem, a file that exists and cannot be read; mount /proc",
)
def test_unreadable_file_causes_a_warning(places: InstructionPaths) -> None:
    (places.home / "CLAUDE.md").symlink_to("/proc/self/mem")
    assert _reasons(_load(places)) == ["cannot be read: Input/output error"]


def test_number_of_files_is_limited(places: InstructionPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "FILE_LIMIT", 3)
    _grow(places.project / ".claude/rules", *(f"{n}.md" for n in range(5)))
    loaded = _load(places)
    assert (_names(loaded), len(loaded.notes)) == (["0.md", "1.md", "2.md"], 2)


def test_text_names_each_file_and_its_owner(places: InstructionPaths) -> None:
    _write(places.home, CLAUDE="Be brief.\n")
    _write(places.project, CLAUDE="\nUse tabs.\n\n")
    (places.project / "AGENTS.local.md").write_text("Use spaces.")
    (places.project / "AGENTS.md").write_text(" \n")
    assert _load(places).to_text() == (
        f'<instructions file="{places.home}/CLAUDE.md" of="the user, for all projects">\nBe brief.\n</instructions>\n\n'
        f'<instructions file="{places.project}/CLAUDE.md" of="the project">\nUse tabs.\n</instructions>\n\n'
        f'<instructions file="{places.project}/AGENTS.local.md" of="the user, for this project">\n'
        "Use spaces.\n</instructions>"
    )
    assert _load(places).to_text() == _load(places).to_text()


def test_file_name_that_is_not_utf8_is_encodable(places: InstructionPaths) -> None:
    rules = places.home / "rules"
    rules.mkdir()
    Path(os.fsdecode(os.fsencode(rules) + b'/\xff".md')).write_text("x")
    assert '\ufffd".md' in _load(places).to_text()
    _load(places).to_text().encode()


@pytest.mark.parametrize("name", ["claude.md", "Claude.md", "agents.md", "Agents.MD", ".claude/claude.md"])
def test_file_name_in_other_case_is_found(places: InstructionPaths, name: str) -> None:
    (places.project / ".claude").mkdir()
    (places.project / name).write_text("Be brief.")
    assert [file.path for file in _load(places).files] == [places.project / name]
    exact = next(each for each in PROJECT_NAMES if each.casefold() == name.casefold())
    (places.project / exact).write_text("Be exact.")
    assert [file.text for file in _load(places).files] == ["Be exact."]


def test_override_replaces_only_its_own_file(places: InstructionPaths) -> None:
    (places.project / "AGENTS.md").write_text("shared")
    (places.project / "AGENTS.override.md").write_text("mine")
    (places.working / "AGENTS.md").write_text("below")
    assert [file.text for file in _load(places).files] == ["mine", "below"]


def test_rules_are_found_in_subdirectories_with_their_patterns(places: InstructionPaths) -> None:
    rules = places.project / ".claude/rules"
    (rules / "web").mkdir(parents=True)
    (rules / "always.md").write_text("Test it.")
    (rules / "web/style.md").write_text('---\npaths: "src/**/*.{ts,tsx}, web/*"\n---\nNo tabs.\n')
    (rules / "web/api.md").write_text("---\npaths:\n  - api/**\n---\n\nCheck input.\n")
    loaded = _load(places)
    assert [(file.path.name, file.paths) for file in loaded.files] == [
        ("always.md", ()),
        ("api.md", ("api/**",)),
        ("style.md", ("src/**/*.{ts,tsx}", "web/*")),
    ]
    assert ' for="api/**">\nCheck input.\n</instructions>' in loaded.to_text()
    assert "paths:" not in loaded.to_text()


def test_rule_with_invalid_front_matter_is_loaded_with_a_warning(places: InstructionPaths) -> None:
    rules = places.project / ".claude/rules"
    rules.mkdir(parents=True)
    (rules / "a.md").write_text("---\npaths: src: x: [\n---\nGo on.\n")
    loaded = _load(places)
    assert [file.text for file in loaded.files] == ["Go on.\n"]
    assert [note.line for note in loaded.notes] == [2]
