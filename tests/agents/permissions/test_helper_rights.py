"""Permissions of a helper, which never prompts, and the commands that only read."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.errors import ToolFailed
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.commands.command_parser import parse_command
from coterie.agents.permissions.commands.read_only_commands import write_reason
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
        assert "is outside" in (await _denial(workspace, tool, arguments) or "")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        *((command, None) for command in ("ls -la", "cat src/a.py", "grep -rn x src | head -n 3", "cat src/*.py")),
        *((command, None) for command in ("git log -5", "ls ../memory 2>/dev/null")),
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
async def test_only_a_command_that_reads_inside_is_allowed(
    workspace: Workspace, command: str, reason: str | None
) -> None:
    denial = await _denial(workspace, Bash(), BashInput(command=command))
    assert denial is None if reason is None else reason in (denial or "")


async def test_deny_rules_apply_and_other_tools_and_invalid_paths_do_not_work(workspace: Workspace) -> None:
    rule = "Read(src/**)"
    denied = await _denial(workspace, Read(), ReadInput(file_path="src/a.py"), rule)
    assert denied == f"The rule {rule} denies this call."
    assert await _denial(workspace, Read(), ReadInput(file_path="b.py"), rule) is None
    assert "cannot be used here" in (await _denial(workspace, KillBash(), KillBashInput(bash_id="1")) or "")
    with pytest.raises(ToolFailed):
        await _denial(workspace, Read(), ReadInput(file_path="a\0b"))


READING = [
    *("ls -la src", "cat a.txt b.txt | head -n 5", "cat *.txt", "/usr/bin/wc -l a.txt", "date +%F"),
    *("tail -n 3 < a.txt", "grep -rn 'needle' . 2>/dev/null", "find . -name '*.txt' -newer a.txt"),
    *("git log --oneline -5 && git --no-pager diff HEAD", "echo $(cat a.txt)", "rg --hidden needle"),
    *("sort -r a.txt | uniq -c", "sort -t, -k1,1nr 'a.txt'", 'sort -t "," -k 2 "a.txt"', "uniq -cd a.txt"),
    *('find . -name "-exec" -newermt -1day', "find . -mtime -7 -size -10k \\( -type f -o -type l \\) -printf '%p\\n'"),
    *(
        'grep -rn "-o" .',
        "rg -n 'x' -g '*.py' --max-count=3",
        "git log -n 5 --since=2.weeks -S'x' -- a.txt",
        "diff -ru a.txt b.txt",
    ),
    *(
        "git blame -L 1,5 a.txt",
        "git diff --stat HEAD~1 -- src/*.py",
        "git grep -nwE 'a|b'",
        "file -bi a.txt",
        "strings -n 8 a.txt",
    ),
]
WRITING = [
    *("echo x > a.txt", "cat a.txt >> b.txt", "rm a.txt", "./cat a.txt", "tools/ls", "PATH=. ls", "env ls", "$CMD"),
    *("sort a.txt -o a.txt", "sort -ro a.txt a.txt", "sort --outp=a.txt a.txt", "sort $FLAGS a.txt"),
    *("uniq a.txt b.txt", "find . -delete", "find . -exec rm {} +", "find . $HOW", "find . -fprint a.txt"),
    "file -C -m a.txt",
    *("git commit -m x", "git -c core.pager=rm log", "git $WHAT log", "git --no-pager lo$g", "git diff --ext-diff"),
    *("git diff --output=a.txt", "git grep -O x", "rg --pre ./convert x", "date -s 2020-01-01", "xargs rm < a.txt"),
    *("bash -c ls", "sed -i s/a/b/ a.txt", "awk '{print > \"a.txt\"}' a.txt", "cat a.txt | tee b.txt", "ls `rm a.txt`"),
    *("echo $(rm a.txt)", "cat < /dev/tcp/example.com/80", "if true; then rm a.txt; fi", "python3 -c 'x'"),
    "cat <<< $(rm a.txt)",
    *("sort a.txt -T . -S 1", "sort -k -- -o a.txt", "sort a$X", "sort {-o,a.txt}", "sort --compress-program=sh a.txt"),
    *(
        "git grep -lOsh x",
        "git grep -e -- -Osh",
        "git log --show-signature",
        "rg -n.z x",
        "rg -z x",
        "uniq -- a.txt b.txt",
        "uniq a*",
        "uniq x{a,b}",
    ),
    *(
        "date 010100002030",
        "date -d x -s y",
        "diff -l a.txt b.txt",
        "find . -files0-from x",
        "file --compile",
        "strings -Tx a",
    ),
    "test -v 'a[$(touch a.txt)]'",
]
QUOTED_OPTIONS = [
    *("find . {} sh -c 'touch MADE' \\;".replace("{}", f"{{-{name}}}") for name in ("exec", "execdir", "ok", "okdir")),
    *("find . {-delete}", "find . {-fprint} a.txt", "find . {-fprintf} a.txt x", "find . {-fls} a.txt"),
    *("sort {-o} a.txt b.txt", "sort {-oa.txt} b.txt", "sort {--output=a.txt} b.txt", "git log {--output=a.txt}"),
    *("git diff {--ext-diff}", "git grep {-Osh} x", "rg {--pre=sh} x", "rg {--pre} sh x", "file {-C} -m a.txt"),
    *("date {-s} 2020-01-01", "date {--set=2020-01-01}"),
]
"""Commands that write or run a program; the word in braces is the option to be quoted."""
QUOTINGS: Mapping[str, Callable[[str], str]] = {
    "double": '"{}"'.format,
    "single": "'{}'".format,
    "backslash": "\\{}".format,
    "inner backslash": lambda word: f"{word[:2]}\\{word[2:]}",
    "empty quotes": lambda word: f"{word[:2]}''{word[2:]}",
    "empty start": '""{}'.format,
    "inner quotes": lambda word: f'{word[0]}"{word[1:]}"',
    "ansi": "$'{}'".format,
    "ansi hexadecimal": lambda word: f"$'\\x2d'{word[1:]}",
    "ansi octal": lambda word: f"$'\\055{word[1:]}'",
    "variable": lambda word: f"${{X}}{word}",
    "empty variable": lambda word: f"$X{word}",
    "substitution": "$(echo {})".format,
    "braces": "{{{},x}}".format,
    "line break": lambda word: f"{word[:2]}\\\n{word[2:]}",
}
"""Functions that write a word in another way, which means the same word to the shell."""


@pytest.mark.parametrize("command", READING)
def test_read_only_command_is_recognized_and_changes_nothing_in_bash(command: str, tmp_path: Path) -> None:
    assert write_reason(parse_command(command)) is None
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("needle\n")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}
    subprocess.run(["/bin/bash", "-c", command], cwd=tmp_path, capture_output=True, check=False, timeout=10)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before


@pytest.mark.parametrize("command", WRITING)
def test_write_reason_names_the_part_that_may_write(command: str) -> None:
    assert write_reason(parse_command(command)) is not None


@pytest.mark.parametrize("quoting", QUOTINGS)
@pytest.mark.parametrize("command", QUOTED_OPTIONS)
def test_quoted_option_that_writes_is_found(command: str, quoting: str) -> None:
    before, _, rest = command.partition("{")
    option, _, after = rest.partition("}")
    assert write_reason(parse_command(f"{before}{option}{after}")) is not None
    assert write_reason(parse_command(f"{before}{QUOTINGS[quoting](option)}{after}")) is not None
