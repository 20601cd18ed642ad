"""Texts that the model gets before its task: date and directory, instruction files, memory indexes and skills."""

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.list_fields import bare_name
from coterie.agents.loop.conversation.token_estimate import window_of
from coterie.agents.loop.model.catalog import Model
from coterie.agents.prompts import render
from coterie.agents.settings import MemorySettings, Settings
from coterie.agents.skills.skill_text import skill_listing
from coterie.agents.skills.store import Skills
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.memory.errors import StoreError
from coterie.memory.instructions.loader import Instructions
from coterie.memory.notes.notes_file import read_file
from coterie.memory.store.memory_index import load_index
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.scopes import MemoryScope
from coterie.paths import home_directory, project_root
from coterie.session_directory import project_slug


def context_text(
    project: Path, clock: Clock, instructions: Instructions | None, memory: str, skills: str = "", servers: str = ""
) -> str:
    """Return the text that the model gets before its task: directory, date, *instructions*, and three given texts.

    *memory* is the text of the memory indexes, *skills* the list of skills, *servers* the instructions of MCP servers.
    """
    # Rendered once, when the session begins: a date that changed overnight would break the cached prefix.
    date = time.strftime("%Y-%m-%d", time.localtime(clock.now()))
    context = render("context", directory=str(project), platform=platform.system(), date=date)
    files_text = instructions.to_text() if instructions is not None else ""
    files = files_text and render("instructions", files=files_text)
    return "\n\n".join(filter(None, [context, files, memory, skills, servers]))


SCOPE_HINTS = {
    "user": "It is the same in all projects of this user: keep in it what holds everywhere.",
    "project": "It belongs to this project and is committed with it: keep in it what all who work here may read.",
    "local": "It belongs to this project and to this user alone, and is not committed.",
}


@attrs.frozen(kw_only=True)
class MemoryIndexText:
    """Index (list of the memories) of one memory store, cut to the size that the model is shown."""

    place: MemoryScope
    text: str
    """Content of the index file, cut; empty if the store is empty or its index cannot be read."""
    warning: str | None = None
    """Text about the lines that were cut off, or why the index cannot be read; None if it is complete."""


def memory_manual(places: Sequence[MemoryScope], settings: MemorySettings, project: Path) -> str:
    """Return the part of the system prompt that explains how to use the memories in *places*; empty without places.

    The same settings give the same text. Blocks on the disk. Raises `ConfigInvalid` if the guidelines cannot be read.
    """
    texts: list[str] = []
    for place in places:
        directory = str(place.directory)
        if place.kind is not None:
            texts.append(render("memory_agent", kind=place.kind, directory=directory, hint=SCOPE_HINTS[place.scope]))
            continue
        texts.append(render("memory", directory=directory))
        if settings.daily_log:
            texts.append(render("memory_log", directory=directory))
        if settings.search_past:
            sessions = home_directory() / "projects" / project_slug(project_root(project)) / "sessions"
            texts.append(render("memory_search", directory=directory, sessions=str(sessions)))
    if places and settings.guidelines is not None:
        texts.append(render("memory_guidelines", guidelines=_guidelines(settings.guidelines)))
    return "\n\n".join(texts)


def read_indexes(places: Sequence[MemoryScope]) -> list[MemoryIndexText]:
    """Read the current memory index of each of *places*, and cut it to the size that the model is shown.

    Blocks on the disk. Raises nothing; the index of a store that cannot be read is empty and has a warning.
    """
    indexes = []
    for place in places:
        try:
            loaded = load_index(MemoryStore.at(place.directory).index())
            index = MemoryIndexText(place=place, text=loaded.text.strip(), warning=loaded.warning)
        except (StoreError, OSError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            index = MemoryIndexText(place=place, text="", warning=f"the memory index cannot be read: {reason}")
        indexes.append(index)
    return indexes


def index_text(indexes: Sequence[MemoryIndexText]) -> str:
    """Return the text with all *indexes* that the model gets before its task; empty if all indexes are empty."""
    shown = []
    for index in filter(lambda index: index.text, indexes):
        # Agents wrote the index, perhaps from tool results: it must not close its frame and pose as the user.
        text = index.text.replace("</memory", "<\\/memory")
        of, path = quoteattr(index.place.title), quoteattr(str(index.place.directory / INDEX))
        warning = "" if index.warning is None else f"\n[{index.warning}]"
        shown.append(f"<memory of={of} index={path}>\n{text}{warning}\n</memory>")
    return render("memory_index", indexes="\n\n".join(shown)) if shown else ""


def _guidelines(path: Path) -> str:
    try:
        content = read_file(path, follow=True)
        text = None if content is None else content.decode().strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigInvalid(str(path), f"guidelines cannot be read: {reason}; correct memory.guidelines") from exc
    if not text:
        raise ConfigInvalid(str(path), "guidelines are missing or empty; write them, or correct memory.guidelines")
    return text


SKILL_TOOL = "Skill"


def skill_listing_text(found: Skills, settings: Settings, model: Model) -> str:
    """Return the list of *found* skills for the model, cut to a share of its context window; empty without skills."""
    window = window_of(settings.model, model, settings.layers.window.compact_window)
    return skill_listing(found.for_model, int(window * settings.skills.listing))


def can_load_skills(definition: AgentDefinition | None) -> bool:
    """True if agents of the type *definition* may use the tool Skill, which loads skills; always True without type."""
    if definition is None:
        return True
    is_listed = definition.tools is None or SKILL_TOOL in map(bare_name, definition.tools)
    return is_listed and not {SKILL_TOOL, "*"} & set(definition.disallowed_tools)
