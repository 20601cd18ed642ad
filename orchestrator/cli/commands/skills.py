"""`coterie skills`: lists, shows and checks skills."""

import json
import shutil
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import click
from rich.cells import cell_len, set_cell_size

from coterie.agents.skills.skill import Skill
from coterie.agents.skills.skill_text import skill_text
from coterie.agents.skills.store import Skills, load_skill_path, load_skills
from coterie.orchestrator.cli.completion_candidates import complete_skill
from coterie.orchestrator.cli.definition_problems import (
    count_text,
    has_errors,
    plain_text,
    problem_counts,
    problem_lines,
    problem_row,
    shown_path,
)
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, sanitize

LEAST = 20
"""Narrowest column of descriptions, even on a narrow terminal."""


@click.group()
def skills() -> None:
    """List, show and check skills."""


@skills.command("list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def list_skills(*, is_json: bool) -> None:
    """List skills by the directory of their files, those of the project first."""
    found = load_skills(Path.cwd())
    if is_json:
        click.echo(json.dumps([_row(skill) for skill in found.by_name.values()]))
        return
    for line in _table(list(found.by_name.values()), shutil.get_terminal_size().columns):
        click.echo(line)
    if errors := sum(problem.severity == "error" for problem in found.problems):
        click.echo(f"{count_text(errors, 'error')}: run `coterie skills check`", err=True)


@skills.command()
@click.argument("name", shell_complete=complete_skill)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def show(*, name: str, is_json: bool) -> None:
    """Show the text and the facts of a skill."""
    found = load_skills(Path.cwd())
    skill = found.by_name.get(name)
    if skill is None:
        raise UsageRefused(f"{found.missing(name)}; `coterie skills list` lists them")
    text = skill_text(skill.used("$ARGUMENTS"))
    if not isinstance(text, str):
        raise UsageRefused(str(text))
    if is_json:
        click.echo(json.dumps({**_row(skill), "text": text}))
        return
    for line in _facts(skill):
        click.echo(plain_text(line))
    click.echo(f"\n{sanitize(text)}")


@skills.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(*, path: Path | None, is_json: bool) -> None:
    """Check skills.

    PATH is a file or a directory [default: all skills for the current directory]. Prints one line for each problem. Exits 1 if a problem is an error: a file that defines no skill.
    """
    found = load_skills(Path.cwd()) if path is None else _load(path)
    if is_json:
        rows = [_row(skill) for skill in found.by_name.values()]
        problems = [problem_row(problem) for problem in found.problems]
        click.echo(json.dumps({"files": found.files, "skills": rows, "problems": problems}))
    else:
        for line in problem_lines(found.problems):
            click.echo(line)
        files, number = count_text(found.files, "file"), count_text(len(found.by_name), "skill")
        click.echo(f"{files}, {number}: {problem_counts(found.problems)}")
    sys.exit(ExitCode.FAILED if has_errors(found.problems) else ExitCode.DONE)


def _load(path: Path) -> Skills:
    try:
        path.stat()
    except OSError as exc:
        raise UsageRefused(f"{path}: {exc.strerror}; give a SKILL.md, its directory, or a directory of skills") from exc
    return load_skill_path(path)


def _row(skill: Skill) -> dict[str, Any]:
    """JSON object of a skill, without its text."""
    return {
        **attrs.asdict(skill),
        "source": str(skill.source),
        "file": str(skill.file),
        "directory": str(skill.directory),
    }


def _facts(skill: Skill) -> Iterable[str]:
    yield f"{skill.name}: {skill.description}"
    yield f"{skill.scope}  {shown_path(skill.source)}"
    if skill.argument_hint:
        yield f"arguments: {skill.argument_hint}"
    yield f"can be started by: {_starters(skill)}"
    if skill.allowed_tools:
        rules = json.dumps(skill.allowed_tools)
        yield f"asks for: {rules[1:-1]}; to allow it, add the rules to `permissions.allow` in your settings"


def _starters(skill: Skill) -> str:
    who = [name for name, may in (("agents", skill.is_for_model), ("you", skill.is_for_user)) if may]
    return " and ".join(who) or "agent definitions that name it"


def _table(found: list[Skill], width: int) -> Iterable[str]:
    """Render one line of at most *width* columns for each skill, under a heading for each directory."""
    column = max((cell_len(skill.name) for skill in found), default=0)
    room = max(LEAST, width - column - 4)
    for place, group in groupby(found, key=lambda skill: (skill.scope, skill.source.parent.parent)):
        yield plain_text(f"{place[0]}  {shown_path(place[1])}")
        for skill in group:
            yield f"  {set_cell_size(skill.name, column)}  {_fit(plain_text(skill.description), room)}".rstrip()


def _fit(text: str, room: int) -> str:
    return text if cell_len(text) <= room else set_cell_size(text, room - 3) + "..."
