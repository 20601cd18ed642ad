"""Commands that only read, and commands that only appear to."""

import subprocess
from pathlib import Path

import pytest

from coterie.agents.permissions.commands.command_parser import parse_command
from coterie.agents.permissions.helper_rights import write_reason

READING = [
    "ls -la src",
    "cat a.txt b.txt | head -n 5",
    "cat *.txt",
    "/usr/bin/wc -l a.txt",
    "grep -rn 'needle' . 2>/dev/null",
    "find . -name '*.txt' -newer a.txt",
    "sort -r a.txt | uniq -c",
    "git log --oneline -5 && git --no-pager diff HEAD",
    "echo $(cat a.txt)",
    "date +%F",
    "tail -n 3 < a.txt",
    "rg --hidden needle",
]
WRITING = [
    "echo x > a.txt",
    "cat a.txt >> b.txt",
    "rm a.txt",
    "./cat a.txt",
    "tools/ls",
    "sort a.txt -o a.txt",
    "sort -ro a.txt a.txt",
    "sort --outp=a.txt a.txt",
    "sort $FLAGS a.txt",
    "uniq a.txt b.txt",
    "find . -delete",
    "find . -exec rm {} +",
    "find . $HOW",
    "find . -fprint a.txt",
    "git commit -m x",
    "git -c core.pager=rm log",
    "git $WHAT log",
    "git --no-pager lo$g",
    "git diff --output=a.txt",
    "git diff --ext-diff",
    "git grep -O x",
    "rg --pre ./convert x",
    "date -s 2020-01-01",
    "file -C -m a.txt",
    "PATH=. ls",
    "env ls",
    "xargs rm < a.txt",
    "bash -c ls",
    "sed -i s/a/b/ a.txt",
    "awk '{print > \"a.txt\"}' a.txt",
    "cat a.txt | tee b.txt",
    "echo $(rm a.txt)",
    "ls `rm a.txt`",
    "cat < /dev/tcp/example.com/80",
    "if true; then rm a.txt; fi",
    "python3 -c 'x'",
    "$CMD",
    "cat <<< $(rm a.txt)",
]


@pytest.mark.parametrize("command", READING)
def test_read_only_command_is_recognized(command: str) -> None:
    assert write_reason(parse_command(command)) is None


@pytest.mark.parametrize("command", WRITING)
def test_write_reason_names_the_part_that_may_write(command: str) -> None:
    assert write_reason(parse_command(command)) is not None


@pytest.mark.parametrize("command", READING)
def test_recognized_read_only_command_changes_nothing_in_bash(command: str, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("needle\n")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}
    subprocess.run(["/bin/bash", "-c", command], cwd=tmp_path, capture_output=True, check=False, timeout=10)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before
