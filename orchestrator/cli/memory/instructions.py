"""`coterie memory instructions`: lists prompt, instruction files, memory index and skills that an agent begins with."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs
import click

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.loop.conversation.token_estimate import estimate_text
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.prompts import render
from coterie.agents.runtime.setup.context_texts import (
    MemoryIndexText,
    can_load_skills,
    memory_manual,
    read_indexes,
    skill_listing_text,
)
from coterie.agents.runtime.setup.memory_scopes import scopes_for
from coterie.agents.settings import Settings
from coterie.agents.skills.skill_text import skill_text
from coterie.agents.skills.store import Skills, load_skills
from coterie.memory.instructions.loader import Instructions, read_instructions
from coterie.memory.instructions.loader import InstructionScope as FileScope
from coterie.memory.store.path_rules import INDEX
from coterie.orchestrator.cli.completion_candidates import complete_agent_type
from coterie.orchestrator.cli.memory.scope_options import json_option
from coterie.orchestrator.cli.output import print_json, sanitize
from coterie.orchestrator.cli.text_table import align_columns
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings

_OWNERS: dict[FileScope, str] = {
    "managed": "for this machine",
    "user": "your instructions for all projects",
    "project": "instructions of the project",
    "private": "your instructions for this project",
}


@attrs.frozen(kw_only=True)
class ContextPart:
    """One text in the context of a new agent."""

    where: Literal["system", "message"]
    """Location of the text: the system prompt, or the first message."""
    what: Literal["prompt", "manual", "definition", "instructions", "index", "skills", "skill"]
    source: str | None = None
    """File of the text; None for a text that is built in."""
    why: str
    text: str

    @property
    def bytes(self) -> int:
        """Size of the text in UTF-8 bytes, without markup that the request may put around it."""
        return len(self.text.encode())

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of the text."""
        return estimate_text(self.text)

    def to_json(self) -> dict[str, object]:
        """Return the facts of the text (place, kind, source, reason, size) as a JSON object, without the text."""
        facts = attrs.asdict(self, filter=attrs.filters.exclude("text"))
        return {**facts, "bytes": self.bytes, "tokens": self.tokens}


@click.command()
@click.option(
    "--agent",
    "kind",
    metavar="TYPE",
    shell_complete=complete_agent_type,
    help="Show the texts for this agent type.  [default: agent type of the settings]",
)
@json_option
def instructions(*, kind: str | None, is_json: bool) -> None:
    """List the texts that a new agent in the current directory starts with, before its task.

    These are the system prompt, instruction files such as CLAUDE.md, the index of memories, and the list of skills.
    Each line shows the place in the request, the size in bytes, the estimated tokens, the file, and why it is loaded.
    Files that are not loaded are listed on standard error with the reason.
    """
    project = Path.cwd()
    settings, definition = apply_definition(
        load_settings(project, {"agent": kind} if kind else {}, os.environ), project
    )
    files, indexes = read_instructions(project), read_indexes(scopes_for(project, settings, definition, is_lead=True))
    parts = list(_parts(project, settings, definition, files, indexes))
    left_out = list(_left_out(settings, files, indexes))
    if is_json:
        print_json({"loaded": [part.to_json() for part in parts], "left_out": left_out})
    else:
        _print(parts, left_out)


def _parts(
    project: Path, settings: Settings, kind: AgentDefinition | None, files: Instructions, indexes: list[MemoryIndexText]
) -> Iterator[ContextPart]:
    """Yield the texts that a new agent of type *kind* starts with, in the order in which a model request has them."""
    yield ContextPart(where="system", what="prompt", why="how every agent works", text=render("agent"))
    if places := [index.place for index in indexes]:
        words = memory_manual(places, settings.memory, project)
        yield ContextPart(where="system", what="manual", why="how to use the memory", text=words)
    if kind is not None and kind.prompt:
        source = None if kind.source is None else str(kind.source)
        yield ContextPart(
            where="system", what="definition", source=source, why=f"agent type {kind.name}", text=kind.prompt
        )
    for file in files.files:
        why = _OWNERS[file.scope] + (f", for {', '.join(file.paths)}" if file.paths else "")
        why += f"; included by {file.included_by}" if file.included_by is not None else ""
        source, text = str(file.path), file.text.strip()
        yield ContextPart(where="message", what="instructions", source=source, why=why, text=text)
    for index in indexes:
        if index.text:
            source = str(index.place.directory / INDEX)
            yield ContextPart(where="message", what="index", source=source, why=index.place.title, text=index.text)
    if settings.skills.enabled:
        yield from _skill_parts(load_skills(project), settings, kind)


def _skill_parts(found: Skills, settings: Settings, kind: AgentDefinition | None) -> Iterator[ContextPart]:
    """Yield the list of loadable skills, if agents of type *kind* can load any, and the skills that *kind* names."""
    words = skill_listing_text(found, settings, known_models().get(settings.model)) if can_load_skills(kind) else ""
    if words:
        why = f"{len(found.for_model)} skills that the agent can load"
        yield ContextPart(where="message", what="skills", why=why, text=words)
    for name in () if kind is None else kind.skills:
        skill = found.by_name.get(name)
        if skill is not None and isinstance(text := skill_text(skill.used()), str):
            source, why = str(skill.source), f"skill of agent type {kind.name}" if kind else ""
            yield ContextPart(where="message", what="skill", source=source, why=why, text=text)


def _left_out(settings: Settings, files: Instructions, indexes: list[MemoryIndexText]) -> Iterator[dict[str, object]]:
    for note in files.notes:
        yield {"source": note.source, "reason": note.reason}
    for index in indexes:
        source = str(index.place.directory / INDEX)
        if index.warning is not None:
            yield {"source": source, "reason": index.warning}
        elif not index.text:
            yield {"source": source, "reason": "is missing or empty"}
    if not settings.memory.enabled:
        yield {"source": "memory.enabled", "reason": "memory is off"}


def _print(parts: list[ContextPart], left_out: list[dict[str, object]]) -> None:
    rows = [(part.where, part.what, f"{part.bytes:,}", f"{part.tokens:,}") for part in parts]
    lines = align_columns(("WHERE", "WHAT", "BYTES", "TOKENS"), rows, left=2)
    whys = [f"{part.source}: {part.why}" if part.source else part.why for part in parts]
    for line, why in zip(lines, ["WHY", *whys], strict=True):
        click.echo(sanitize(f"{line}  {why}"))
    total = sum(part.bytes for part in parts)
    click.echo(f"{len(parts)} texts, {total:,} bytes, about {sum(part.tokens for part in parts):,} tokens")
    for one in left_out:
        click.echo(sanitize(f"skipped: {one['source']}: {one['reason']}"), err=True)
