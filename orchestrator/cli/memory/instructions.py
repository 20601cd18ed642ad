"""`coterie memory instructions`: all that is loaded into an agent's context before its task, and why."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs
import click

from coterie.agents.definitions import Definition
from coterie.agents.models import known_models
from coterie.agents.prompt import render
from coterie.agents.skills import Skills, load_skills, skill_text
from coterie.agents.tokens import estimate_text
from coterie.memory.instructions import InstructionFile, Instructions
from coterie.memory.instructions import Scope as FileScope
from coterie.memory.store.index import INDEX
from coterie.orchestrator.cli.completion import complete_agent
from coterie.orchestrator.cli.mail.wording import table
from coterie.orchestrator.cli.memory.place import json_option, print_json
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.first_context import instructions_of
from coterie.orchestrator.kinds import of_a_kind
from coterie.orchestrator.memory_texts import IndexShown, manual, read_indexes
from coterie.orchestrator.remembering import places_for
from coterie.orchestrator.settings import Settings, load_settings
from coterie.orchestrator.skill_texts import listing_text, may_load

HEAD = ("WHERE", "WHAT", "BYTES", "TOKENS")
_OWNERS: dict[FileScope, str] = {
    "managed": "holds on this machine",
    "user": "yours, for all projects",
    "project": "the project's",
    "private": "yours, for this project",
}


@attrs.frozen(kw_only=True)
class Part:
    """A text that an agent begins with."""

    where: Literal["system", "message"]
    """The system prompt, or the first message."""
    what: Literal["prompt", "manual", "definition", "instructions", "index", "skills", "skill"]
    source: str | None = None
    """The file, if it is one of the user's."""
    why: str
    text: str

    @property
    def bytes(self) -> int:
        """As it is sent, without the frame around it."""
        return len(self.text.encode())

    @property
    def tokens(self) -> int:
        """About so many."""
        return estimate_text(self.text)

    def to_json(self) -> dict[str, object]:
        """All but the text, which stands in the source."""
        facts = attrs.asdict(self, filter=attrs.filters.exclude("text"))
        return {**facts, "bytes": self.bytes, "tokens": self.tokens}


@click.command()
@click.option(
    "--agent", "kind", metavar="TYPE", shell_complete=complete_agent, help="As an agent of this kind gets it."
)
@json_option
def instructions(*, kind: str | None, is_json: bool) -> None:
    """Show what is loaded into the context of an agent that is run here, in order, with its size, and why.

    Tokens are estimated. What is left out is said too.
    """
    project = Path.cwd()
    settings, definition = of_a_kind(load_settings(project, {"agent": kind} if kind else {}, os.environ), project)
    files, indexes = instructions_of(project), read_indexes(places_for(project, settings, definition, is_lead=True))
    parts = list(_parts(project, settings, definition, files, indexes))
    left_out = list(_left_out(settings, files, indexes))
    with open_output():
        if is_json:
            print_json({"loaded": [part.to_json() for part in parts], "left_out": left_out})
        else:
            _print(parts, left_out)


def _parts(
    project: Path, settings: Settings, kind: Definition | None, files: Instructions, indexes: list[IndexShown]
) -> Iterator[Part]:
    """The parts in the order of a request."""
    yield Part(where="system", what="prompt", why="every agent is told how to work", text=render("agent"))
    if places := [index.place for index in indexes]:
        words = manual(places, settings.memory, project)
        yield Part(where="system", what="manual", why="memory is switched on: how to use it", text=words)
    if kind is not None and kind.prompt:
        source = None if kind.source is None else str(kind.source)
        yield Part(where="system", what="definition", source=source, why=f"it is a {kind.name}", text=kind.prompt)
    for file in files.files:
        yield Part(where="message", what="instructions", source=str(file.path), why=_why(file), text=file.text.strip())
    for index in indexes:
        if index.text:
            source = str(index.place.directory / INDEX)
            yield Part(where="message", what="index", source=source, why=index.place.title, text=index.text)
    if settings.skills.enabled:
        yield from _skill_parts(load_skills(project), settings, kind)


def _skill_parts(found: Skills, settings: Settings, kind: Definition | None) -> Iterator[Part]:
    """The list of skills, and those that an agent of this *kind* begins with."""
    words = listing_text(found, settings, known_models().get(settings.model)) if may_load(kind) else ""
    if words:
        why = f"{len(found.for_model)} skills that it can load"
        yield Part(where="message", what="skills", why=why, text=words)
    for name in () if kind is None else kind.skills:
        skill = found.by_name.get(name)
        if skill is not None and isinstance(text := skill_text(skill.used()), str):
            source, why = str(skill.source), f"a {kind.name} begins with it" if kind else ""
            yield Part(where="message", what="skill", source=source, why=why, text=text)


def _why(file: InstructionFile) -> str:
    owner = _OWNERS[file.scope] + (f", for {', '.join(file.paths)}" if file.paths else "")
    return owner if file.included_by is None else f"{owner}; {file.included_by} includes it"


def _left_out(settings: Settings, files: Instructions, indexes: list[IndexShown]) -> Iterator[dict[str, object]]:
    for note in files.notes:
        yield {"source": note.source, "reason": note.reason}
    for index in indexes:
        source = str(index.place.directory / INDEX)
        if index.warning is not None:
            yield {"source": source, "reason": index.warning}
        elif not index.text:
            yield {"source": source, "reason": "is not there, or empty"}
    if not settings.memory.enabled:
        yield {"source": "memory.enabled", "reason": "memory is switched off"}


def _print(parts: list[Part], left_out: list[dict[str, object]]) -> None:
    rows = [(part.where, part.what, f"{part.bytes:,}", f"{part.tokens:,}") for part in parts]
    lines = table(HEAD, rows, left=2)
    whys = [f"{part.source}: {part.why}" if part.source else part.why for part in parts]
    for line, why in zip(lines, ["WHY", *whys], strict=True):
        click.echo(printable(f"{line}  {why}"))
    total = sum(part.bytes for part in parts)
    click.echo(f"{len(parts)} texts, {total:,} bytes, about {sum(part.tokens for part in parts):,} tokens")
    for one in left_out:
        click.echo(printable(f"left out: {one['source']}: {one['reason']}"), err=True)
