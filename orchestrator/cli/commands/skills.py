"""`coterie skills`: lists, shows and checks skills."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import click

from coterie.agents.skills.skill_text import skill_text
from coterie.agents.skills.store import Skill, load_skill_path, load_skills
from coterie.orchestrator.cli.commands.definition_commands import DefinitionCommands, plain_text, shown_path
from coterie.orchestrator.cli.completion_candidates import complete_skill
from coterie.orchestrator.cli.output import UsageRefused, sanitize
from coterie.orchestrator.cli.shared_options import json_option


@click.group()
def skills() -> None:
    """List, show and check skills: SKILL.md files with instructions that an agent loads when it needs them."""


def _row(skill: Skill) -> dict[str, Any]:
    """Return the fields of a skill as a JSON object, without the text of its instructions."""
    paths = {name: str(getattr(skill, name)) for name in ("source", "file", "directory")}
    return {**attrs.asdict(skill), **paths}


DefinitionCommands(
    noun="skill",
    article="a",
    listing="List the skills that can be used in the current directory.\n\n"
    "A skill is a SKILL.md file with instructions that an agent loads when it needs them. The list shows name and "
    "description of each skill, grouped by the directory that contains the skills. Invalid files are not listed.",
    key="skills",
    expected="a SKILL.md, its directory, or a directory of skills",
    load=load_skills,
    load_path=load_skill_path,
    row=_row,
    heading=lambda skill: plain_text(f"{skill.scope}  {shown_path(skill.source.parent.parent)}"),
    cells=lambda skill: (skill.name, plain_text(skill.description)),
).add_to(skills)


@skills.command()
@click.argument("name", shell_complete=complete_skill)
@json_option()
def show(*, name: str, is_json: bool) -> None:
    """Show a skill with all its fields and its text.

    Prints description, file, arguments, who can start it, the tools that it asks for, and the text. A skill is a file
    with instructions that an agent loads when it needs them. `coterie skills list` lists the names.
    """
    found = load_skills(Path.cwd())
    skill = found.by_name.get(name)
    if skill is None:
        raise UsageRefused(f"{found.missing(name)}; `coterie skills list` lists all skills")
    text = skill_text(skill.used("$ARGUMENTS"))
    if not isinstance(text, str):
        raise UsageRefused(str(text))
    if is_json:
        click.echo(json.dumps({**_row(skill), "text": text}))
        return
    for line in _facts(skill):
        click.echo(plain_text(line))
    click.echo(f"\n{sanitize(text)}")


def _facts(skill: Skill) -> Iterable[str]:
    yield f"{skill.name}: {skill.description}"
    yield f"{skill.scope}  {shown_path(skill.source)}"
    if skill.argument_hint:
        yield f"arguments: {skill.argument_hint}"
    starters = [name for name, may in (("agents", skill.is_for_model), ("you", skill.is_for_user)) if may]
    yield f"can be started by: {' and '.join(starters) or 'agent definitions that name it'}"
    if skill.allowed_tools:
        rules = json.dumps(skill.allowed_tools)
        yield f"asks for: {rules[1:-1]}; to allow it, add the rules to `permissions.allow` in your settings"
