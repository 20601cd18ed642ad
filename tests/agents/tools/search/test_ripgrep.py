"""Tests that Grep gives the same output with and without ripgrep."""

import os
import random
import re
import shutil
import sysconfig
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.search.grep import FIRST_BATCH, Grep
from coterie.agents.tools.search.grep_worker import LARGEST, SNIFFED, GrepRequest, Mode, search
from coterie.agents.tools.search.ripgrep import BATCH, SAME_LETTERS, byte_pattern, files_without, installed_ripgrep
from coterie.agents.tools.tool import Workspace
from tests.agents.tools.tool_calls import call
from tests.examples import examples

MODES: tuple[Mode, ...] = ("files_with_matches", "content", "count")
FILES = 250


@pytest.fixture(scope="session")
def ripgrep() -> str:
    """Return ripgrep from the development packages, or else from PATH."""
    program = shutil.which("rg", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    assert program is not None, "ripgrep is not installed: install the extra dev"
    return program


@pytest.fixture
def tree(tmp_path: Path) -> Workspace:
    """Create more files than the first batch; `late` and `later` come after them."""
    for number in range(FIRST_BATCH):
        (tmp_path / f"a{number:04}").write_text("word\n" if number == 7 else "x\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "late").write_bytes(b"\xef\xbb\xbfword\r\nno\r\nno\r\nlast word\r\n")
    (tmp_path / "later").write_bytes(b"1\nWord\n\xff word")
    (tmp_path / "nothing").write_text("-\n")
    (tmp_path / "zeros").write_bytes(b"word\0")
    return Workspace(root=tmp_path, scratch=tmp_path)


async def _grep(workspace: Workspace, program: str | None, **value: Any) -> str:
    return (await call(Grep(ripgrep=program), workspace, **value)).text


def _program(path: Path, script: str, version: str = "ripgrep 15.0.0") -> str:
    """Create a program that reports the version of ripgrep and runs *script* for a search."""
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{script}\n')
    path.chmod(0o755)
    return str(path)


# What both engines are given to disagree about: cases across ASCII's border, bytes that are not UTF-8, ends of lines.
LETTERS = (
    "abkKsSiIzZ09_ -\t.,{}\u00e9\u00c9\u00df\u1e9e\u00b2\u0660\u0130\u0131\u017f\u212a\u2028\u0085\ufffd\U0001f600"
)
BYTES = [
    *(letter.encode() for letter in LETTERS),
    *(b"\n", b"\n", b"\r\n", b"\r", b"\0", b"\x1c", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"a\0b\0"),
    *(b"\xff", b"\xc3", b"\xe2\x84", b"\xed\xa0\x80", b"\xf0\x9f", b"\x80"),
]

_single = st.sampled_from(LETTERS).map(re.escape) | st.sampled_from([".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"])
_items = st.one_of(
    st.sampled_from(LETTERS.replace("-", "")).map(re.escape),
    st.sampled_from([r"\d", r"\w", r"\s", r"\W", r"\n\r", "a-k", "I-Z", "0-9", "Z-a", "\u00df-\u017f", r"\]", r"\-"]),
)
_set = st.builds("[{}{}]".format, st.sampled_from(["", "^"]), st.lists(_items, min_size=1, max_size=4).map("".join))
_assertion = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z"])
_repeat = st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "*+", "++", "{2}", "{1,2}", "{,2}", "{2,}", "{,}?", "{0,1}+"]
)
_group = st.sampled_from(["({})", "(?:{})", "(?:{}|{})", "({}|)"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds(lambda form, one, two: form.format(one, two), _group, inner, inner)
    return st.builds(str.__add__, group, _repeat) | st.builds(str.__add__, inner, inner) | group


_atom = _single | _set | _assertion | st.builds(str.__add__, _single | _set, _repeat)
EXPRESSIONS = st.builds(str.__add__, st.sampled_from(["", "(?i)"]), st.recursive(_atom, _larger, max_leaves=5))
SCRAWLS = st.lists(
    st.sampled_from([*r"ab()[]{}|*+?\^$.-,:#2=!<>dDwWsSbBAZPnrtxuki", "\u00e9", "(?", "(?:", "{1", "[^"]), max_size=12
).map("".join)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Short contents, so that most consist only of an edge case for expressions."""
    directory, source = tmp_path_factory.mktemp("drawn"), random.Random(5)
    for number in range(FILES):
        line = source.choices(BYTES, k=source.randint(1, 4))
        parts = [source.choice([b"", b"", b"\xef\xbb\xbf"]), *line, source.choice([b"", b"\n", b"\r\n", b"\r\r\n"])]
        (directory / f"f{number:03}").write_bytes(b"".join(parts))
    (directory / "text").write_bytes(b"\n" * SNIFFED + b"a\0b")
    return [(str(path), path.name) for path in sorted(directory.iterdir())]


def _check(program: str, expression: str, files: list[tuple[str, str]], order: dict[str, Any]) -> None:
    """Excluding files with ripgrep does not change the result."""
    pattern = byte_pattern(expression, ignore_case=order["ignore_case"])
    if pattern is None:
        return
    without = trio.run(files_without, program, pattern, [path for path, _ in files])
    excluded = [place for place, (path, _) in enumerate(files) if path in without]
    whole = GrepRequest(pattern=expression, files=files, **order)
    with warnings.catch_warnings(action="ignore"):
        assert search(whole._replace(excluded=excluded)) == search(whole)


_bounds = {"context": st.integers(0, 2), "limit": st.sampled_from([1, 20, 1_000])}
ORDERS = st.fixed_dictionaries({"ignore_case": st.booleans(), "mode": st.sampled_from(MODES), **_bounds})


@pytest.mark.slow
@examples(40)
@given(expression=EXPRESSIONS, scrawl=SCRAWLS, order=ORDERS)
def test_result_is_same_with_ripgrep_for_any_files_and_expression(
    expression: str, scrawl: str, order: dict[str, Any], ripgrep: str, files: list[tuple[str, str]]
) -> None:
    assert byte_pattern(expression, ignore_case=False) is not None
    _check(ripgrep, expression, files, order)
    _check(ripgrep, scrawl, files, order)


@pytest.mark.parametrize(
    ("expression", "content"),
    [
        *(("a.b", content) for content in ("a\u00e9b".encode(), b"a\xffb", b"a\rb", b"\n" * SNIFFED + b"a\0b")),
        *(("a.{2}b", b"a\xff\xc3b"), ("a\ufffdb", b"a\xe2\x84b"), ("[^x]\ufffd", b"a\xff"), ("no", b"\xff\xfeno\n")),
        *(("caf\u00e9", "caf\u00e9".encode()), ("a[\u00e0-\u00ff]b", "a\u00e9b".encode())),
        *(("^end$", b"\xef\xbb\xbfend\r\n"), ("$^", b"\xef\xbb\xbf\r\n"), (r"\Aend\Z", b"end\r")),
        *((r"\bk\b", b"\xffk\xff"), (r"\w{3}", "a\u00b2\u0660".encode()), (r"[^\W]b", "\u00e9b".encode())),
        *((r"a\sb", b"a\x1cb"), (r"a\sb", "a\u2028b".encode()), (r"a\db", "a\u0660b".encode())),
        *(("(?i)[^a]b", "\u00e9B".encode()), ("(?i)mask", "MA\u017f\u212a".encode()), ("(?i)[k]x", "\u212aX".encode())),
        *(("(?i)[\u212a\u017f]x", b"KX"), ("(?i)\u212ax", b"kX"), ("(?i)file", "F\u0130LE".encode())),
        *(("(?i)[h-j]x", "\u0131x".encode()), ("(?i)stra\u00dfe", "STRA\u1e9eE".encode())),
        *(("x{,2}y{}", b"xy{}"), ("a{,}b", b"aaab"), ("[]-a]b", b"_b"), ("[a-]b", b"-b"), (r"[^\n]b", b"\tb")),
        ("(?P<n>a|)b++", b"bb"),
    ],
)
async def test_file_with_python_match_is_never_excluded(
    expression: str, content: bytes, ripgrep: str, tmp_path: Path
) -> None:
    (tmp_path / "there").write_bytes(content)
    (tmp_path / "other").write_bytes(b"--\n")
    pattern = byte_pattern(expression, ignore_case=False)
    assert pattern is not None
    order = GrepRequest(pattern=expression, ignore_case=False, mode="files_with_matches", context=0, limit=9, files=[])
    there, other = str(tmp_path / "there"), str(tmp_path / "other")
    assert search(order._replace(files=[(there, "there")])).lines == ["there"]
    assert await files_without(ripgrep, pattern, [there, other]) <= {other}


@pytest.mark.parametrize(
    "expression",
    [
        *("a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b"),
        *(r"(a)\1", "(?P<n>a)(?P=n)", "(a)?(?(1)b|c)"),
        *("(?i:a)b", "(?-i:a)", "(?x) a b", "(?s).", "(?m)^a", "(?a)é", "a(?i)", "(?ix)a", "(?L)a"),
        *("(?>a+)b", "(?#note)a", "(?P>n)", "(?<n>a)", "(?"),
        *(r"\0", r"\012", r"\x41", r"\u0041", r"\U00000041", r"\N{DIGIT ONE}", r"\f", r"\v", r"\a"),
        *(r"\z", r"\p{L}", r"\h", r"\R", r"\K", r"\Q.\E", r"\G"),
        *("a\nb", r"a\nb", r"[\n]", "\\\n"),
        *("[[:alpha:]]", "[[a]]", "[a--b]", "[a&&b]", "[a||b]", "[a~~b]"),
        *(r"[a-\d]", r"[\w-.]", r"[\b]", r"[\x41]", r"[\1]", "[a", "[]", "[^]", "\\"),
        *("a{1000}", "a{1,9999}", "a{" + "9" * 5_000 + "}"),
    ],
)
def test_ambiguous_expression_has_no_byte_pattern(expression: str) -> None:
    assert byte_pattern(expression, ignore_case=False) is None
    assert byte_pattern(f"word|{expression}", ignore_case=False) is None


@pytest.mark.slow
def test_same_letter_table_is_complete_for_ascii() -> None:
    beyond = "".join(chr(code) for code in range(128, 0x110000))
    same = {letter: "".join(re.findall(letter, beyond, re.IGNORECASE)) for letter in "iks"}
    assert same == SAME_LETTERS
    assert sorted(re.findall("[a-z]", beyond, re.IGNORECASE)) == sorted("".join(SAME_LETTERS.values()))


async def test_only_text_files_without_match_are_excluded(ripgrep: str, tmp_path: Path) -> None:
    contents = {"no": b"x\n", "yes": b"word\n", "empty": b"", "zeros": b"\0x"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGEST + 1)
    (tmp_path / "link").symlink_to("no")
    os.mkfifo(tmp_path / "pipe")
    files = [str(tmp_path / name) for name in (*contents, "large", "link", "pipe", "gone")]
    assert await files_without(ripgrep, "word", [*files, "/proc/version"]) == {str(tmp_path / "no")}


async def test_unusual_file_names_are_distinguished(ripgrep: str, tmp_path: Path) -> None:
    names = [b"-l", b"a\nb", b"\xff", "\u00e9".encode(), b".hidden", b"*", b" "]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text("word\n")
        (tmp_path / os.fsdecode(name + b"2")).write_text("x\n")
    others = [str(tmp_path / os.fsdecode(name + b"2")) for name in names]
    files = [str(tmp_path / os.fsdecode(name)) for name in names] + others
    assert await files_without(ripgrep, "word", files) == set(others)


@pytest.mark.slow
async def test_paths_beyond_command_line_limit_are_batched(ripgrep: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{number:0200}" for number in range(BATCH // 200 + 10)]
    for path in files:
        path.write_text("x\n")
    for path in (files[0], files[-1]):
        path.write_text("word\n")
    assert await files_without(ripgrep, "word", [str(path) for path in files]) == {str(path) for path in files[1:-1]}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_grep_output_is_same_with_and_without_ripgrep(mode: str, ripgrep: str, tree: Workspace) -> None:
    """Also if the limit falls between the first batch and the other files, or if lines of both are adjacent."""
    values: list[dict[str, Any]] = [
        {"pattern": "word"},
        {"pattern": "word", "ignore_case": True, "context": 1},
        {"pattern": "word", "head_limit": 1},
        {"pattern": "word", "head_limit": 2, "context": 1},
        {"pattern": "last word$"},
        {"pattern": "absent"},
        {"pattern": "word("},
    ]
    for value in values:
        expected = await _grep(tree, None, output_mode=mode, **value)
        assert await _grep(tree, ripgrep, output_mode=mode, **value) == expected


@pytest.mark.slow
async def test_ripgrep_gets_only_files_after_first_batch(
    tree: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    liar = _program(tmp_path_factory.mktemp("bin") / "rg", "exit 1")
    assert await _grep(tree, liar, pattern="word") == "a0007"
    assert await _grep(tree, liar, pattern="(?=word)") == "a0007\nlate\nlater"
    assert await _grep(tree, liar, pattern="[x-]") == await _grep(tree, None, pattern="[x-]")
    assert await _grep(tree, "/nowhere/rg", pattern="word") == "a0007\nlate\nlater"


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("exit 2", "ripgrep 15.0.0"),
        ("echo warning >&2; exit 1", "ripgrep 15.0.0"),
        ("kill -KILL $$", "ripgrep 15.0.0"),
        ("echo somewhere/else", "ripgrep 15.0.0"),
        ("exit 1", "ripgrep 13.0.0"),
        ("exit 1", "ripgrep 14.0.3"),
        ("exit 1", "another program 15.0.0"),
        ("exit 1", ""),
    ],
)
async def test_failing_or_foreign_program_is_ignored(script: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x\n")
    assert not await files_without(_program(tmp_path / "rg", script, version), "word", [str(tmp_path / "file")])


def test_ripgrep_is_found_on_path_but_not_in_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program(tmp_path / "rg", "")
    find: Callable[[], str | None] = installed_ripgrep.__wrapped__
    monkeypatch.chdir(tmp_path)
    for path, expected in ((str(tmp_path), program), (".", None), ("", None), ("/nowhere", None)):
        monkeypatch.setenv("PATH", path)
        assert find() == expected


@pytest.mark.slow
async def test_cancelled_search_kills_ripgrep(tree: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("bin")
    started = directory / "started"
    slow = _program(directory / "rg", f"echo $$ >{directory}/pid; mv {directory}/pid {started}; exec sleep 61")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_grep, tree, slow, pattern="word"))
            while not started.exists():  # noqa: ASYNC110 - no event tells of a started process
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(int(started.read_text()))
