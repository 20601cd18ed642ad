"""Instruction files: order, includes, and tolerance of unusable entries."""

import os
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.instructions import loader
from coterie.memory.instructions.includes import find_includes
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
    """Reasons of the warnings, without the advice after the semicolon."""
    return [note.reason.partition(";")[0] for note in loaded.notes]


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


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(),
    reason="needs /proc/self/mem, a file that exists and cannot be read; mount /proc",
)
def test_unreadable_file_causes_a_warning(places: InstructionPaths) -> None:
    (places.home / "CLAUDE.md").symlink_to("/proc/self/mem")
    loaded = _load(places)
    assert (_reasons(loaded), loaded.to_text()) == (["cannot be read: Input/output error"], "")


def test_file_reached_twice_keeps_its_first_position(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="@AGENTS.md first", AGENTS="shared")
    (places.project / ".claude").mkdir()
    (places.project / ".claude/CLAUDE.md").symlink_to("../AGENTS.md")
    loaded = _load(places)
    assert [(file.path.name, file.included_by) for file in loaded.files] == [
        ("AGENTS.md", places.project / "CLAUDE.md"),
        ("CLAUDE.md", None),
    ]


def test_include_precedes_its_file_and_shares_its_scope(
    places: InstructionPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of an include is relative to its file, absolute, or in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (places.project / "my docs").mkdir()
    _write(places.project / "my docs", style="style, see @deeper.md.", deeper="deeper", absolute="a")
    _write(places.home, CLAUDE="@~/.coterie/mine.md", mine="m")
    text = rf"Read @my\ docs/style.md, then @{places.project}/my\ docs/absolute.md @~nobody/x.md"
    (places.project / "CLAUDE.local.md").write_text(text)
    loaded = _load(places)
    assert [(file.scope, file.path.name) for file in loaded.files] == [
        *(("user", name) for name in ("mine.md", "CLAUDE.md")),
        *(("private", name) for name in ("deeper.md", "style.md", "absolute.md", "CLAUDE.local.md")),
    ]
    assert loaded.files[-1].text == text


NOT_INCLUDED = [
    *("me@there.md", "`@there.md`", "`` ` @there.md ``", "`a span\nover @there.md lines`", "```\n@there.md\n```"),
    *("- ```python\n  @there.md\n  ```", "~~~~\n```\n@there.md\n~~~\n~~~~", "> ```\n> @there.md"),
    *("```\nnever closed\n\n@there.md", f"@{'x' * 5_000}", "@\u202e.md @😀"),
    "@dir @dir/ @. @~ @/ @missing.md @scope/package @dataclass(frozen=True) @",
]


@pytest.mark.parametrize("text", NOT_INCLUDED)
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


@examples(60)
@given(st.text(alphabet="`~ @a\n>-.\\\r", max_size=200))
def test_includes_of_any_text_have_correct_line_numbers(text: str) -> None:
    lines = text.split("\n")
    for include in find_includes(text):
        assert "@" + include.path.replace(" ", "\\ ") in lines[include.line - 1]


def test_includes_are_loaded_up_to_depth_four_and_cycles_end(places: InstructionPaths) -> None:
    _write(places.project, CLAUDE="@1.md", **{str(n): f"@{n + 1}.md @CLAUDE.md" for n in range(1, 6)})
    loaded = _load(places)
    assert _names(loaded) == ["4.md", "3.md", "2.md", "1.md", "CLAUDE.md"]
    (note,) = loaded.notes
    assert str(note).startswith(f"{places.project}/4.md:1: @5.md is not loaded: more than 4 nested includes")


def test_include_outside_the_project_needs_approval(places: InstructionPaths, tmp_path: Path) -> None:
    """The approval does not cover nested includes; the repository cannot include files of the user either."""
    one, two, private = tmp_path / "elsewhere/one.md", tmp_path / "elsewhere/two.md", places.home / "private.md"
    _write(tmp_path / "elsewhere", one="@two.md", two="2")
    _write(places.home, private="p")
    _write(places.project, CLAUDE=f"first\n@../elsewhere/one.md\n@{private}")
    loaded = _load(places)
    assert (_names(loaded), loaded.unapproved) == (["CLAUDE.md"], (one, private))
    assert [(note.path.name, note.line) for note in loaded.notes] == [("CLAUDE.md", 2), ("CLAUDE.md", 3)]
    assert all(word in loaded.notes[0].reason for word in (str(one), "approve"))
    approved = _load(places, one, private)
    assert (_names(approved), approved.unapproved) == (["one.md", "private.md", "CLAUDE.md"], (two,))


def test_links_are_resolved_before_the_scope_check(places: InstructionPaths, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere/secret.md"
    outside.write_text("secret")
    (places.project / "inside.md").symlink_to(outside)
    (places.project / "AGENTS.md").symlink_to(outside)
    (places.project / "src/up").symlink_to("../..")
    _write(tmp_path / "elsewhere", dotfile="mine")
    (places.home / "CLAUDE.md").symlink_to(tmp_path / "elsewhere/dotfile.md")
    _write(places.project, CLAUDE="@inside.md @src/up/elsewhere/secret.md")
    loaded = _load(places)
    assert [file.path for file in loaded.files] == [places.home / "CLAUDE.md", places.project / "CLAUDE.md"]
    assert (loaded.unapproved, len(loaded.notes)) == ((outside,), 3)


def test_binary_and_huge_files_are_left_out_with_a_warning(places: InstructionPaths) -> None:
    contents = {"nul": b"a\0b", "latin": b"caf\xe9", "huge": b"x" * (SIZE_LIMIT + 1), "utf-16": "a".encode("utf-16")}
    (places.project / ".claude/rules").mkdir(parents=True)
    for name, content in contents.items():
        (places.project / f".claude/rules/{name}.md").write_bytes(content)
    _write(places.project, CLAUDE="@.claude/rules/nul.md" + "x" * LONG, AGENTS="\ufeff" + "y" * LONG)
    loaded = _load(places)
    assert [len(file.text) for file in loaded.files] == [LONG + 21, LONG]
    assert {note.path.stem: note.reason.partition(";")[0] for note in loaded.notes} == {
        "nul": "is not loaded: the instruction file has a NUL byte, so it is not text",
        "latin": "is not loaded: the instruction file is not in UTF-8",
        "huge": "is not loaded: the instruction file is larger than 1,000,000 bytes",
        "utf-16": "is not loaded: the instruction file is not in UTF-8",
        "CLAUDE": "has 40,021 characters, which each turn pays for",
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
        "is not loaded: the instruction file is not a regular file",
        "is not loaded: the instruction file is not a regular file",
        "cannot be read: Too many levels of symbolic links",
        "is a link to a missing file",
        "cannot be listed: Too many levels of symbolic links",
    ]


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


@pytest.mark.parametrize("name", ["claude.md", "Claude.md", "agents.md", "Agents.MD", ".claude/claude.md"])
def test_file_name_in_other_case_is_found(places: InstructionPaths, name: str) -> None:
    (places.project / ".claude").mkdir()
    (places.project / name).write_text("Be brief.")
    assert [file.path for file in _load(places).files] == [places.project / name]
    exact = next(each for each in PROJECT_NAMES if each.casefold() == name.casefold())
    (places.project / exact).write_text("Be exact.")
    assert [file.text for file in _load(places).files] == ["Be exact."]


def test_override_replaces_only_its_own_file(places: InstructionPaths, tmp_path: Path) -> None:
    """Files of a working directory outside the project are read too."""
    _write(places.project, AGENTS="shared")
    (places.project / "AGENTS.override.md").write_text("mine")
    _grow(tmp_path, "elsewhere/CLAUDE.md", "CLAUDE.md")
    loaded = _load(attrs.evolve(places, working=tmp_path / "elsewhere"))
    assert [file.text for file in loaded.files] == ["mine", "elsewhere/CLAUDE.md says\n"]


def test_rules_are_found_in_subdirectories_with_their_patterns(places: InstructionPaths) -> None:
    rules = places.project / ".claude/rules"
    (rules / "web").mkdir(parents=True)
    (rules / "always.md").write_text("Test it.")
    (rules / "broken.md").write_text("---\npaths: src: x: [\n---\nGo on.\n")
    (rules / "web/style.md").write_text('---\npaths: "src/**/*.{ts,tsx}, web/*"\n---\nNo tabs.\n')
    (rules / "web/api.md").write_text("---\npaths:\n  - api/**\n---\n\nCheck input.\n")
    loaded = _load(places)
    assert [(file.path.name, file.paths) for file in loaded.files if file.path.name != "broken.md"] == [
        ("always.md", ()),
        ("api.md", ("api/**",)),
        ("style.md", ("src/**/*.{ts,tsx}", "web/*")),
    ]
    assert loaded.files[1].text == "Go on.\n"
    assert [(note.path.name, note.line) for note in loaded.notes] == [("broken.md", 2)]
    assert ' for="api/**">\nCheck input.\n</instructions>' in loaded.to_text()
    assert "paths:" not in loaded.to_text()
    Path(os.fsdecode(os.fsencode(rules) + b'/\xff".md')).write_text("x")
    assert b'\xef\xbf\xbd".md' in _load(places).to_text().encode(), "a name that is not UTF-8"
