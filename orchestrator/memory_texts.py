"""What an agent is told of its memories: the manual in its system prompt, the indexes before its task."""

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.agents.project import project_root
from coterie.agents.prompt import render
from coterie.memory.errors import StoreError
from coterie.memory.notes.file import read_file
from coterie.memory.store.index import INDEX, load_index
from coterie.memory.store.places import MemoryPlace
from coterie.memory.store.store import Store
from coterie.orchestrator.session import slug
from coterie.orchestrator.settings.schema import MemorySettings

HINTS = {
    "user": "It is the same in all projects of this user: keep in it what holds everywhere.",
    "project": "It belongs to this project and is committed with it: keep in it what all who work here may read.",
    "local": "It belongs to this project and to this user alone, and is not committed.",
}


@attrs.frozen(kw_only=True)
class IndexShown:
    """The index of one store, as an agent is shown it."""

    place: MemoryPlace
    text: str
    """Empty if there is nothing in it."""
    warning: str | None = None
    """What of it was left out."""


def manual(places: Sequence[MemoryPlace], settings: MemorySettings, project: Path) -> str:
    """How to use the memories at *places*; for the same settings the same. Blocks; raises `ConfigInvalid`."""
    texts: list[str] = []
    for place in places:
        directory = str(place.directory)
        if place.kind is not None:
            texts.append(render("memory_agent", kind=place.kind, directory=directory, hint=HINTS[place.scope]))
            continue
        texts.append(render("memory", directory=directory))
        if settings.daily_log:
            texts.append(render("memory_log", directory=directory))
        if settings.search_past:
            sessions = home() / "projects" / slug(project_root(project)) / "sessions"
            texts.append(render("memory_search", directory=directory, sessions=str(sessions)))
    if places and settings.guidelines is not None:
        texts.append(render("memory_guidelines", guidelines=_guidelines(settings.guidelines)))
    return "\n\n".join(texts)


def read_indexes(places: Sequence[MemoryPlace]) -> list[IndexShown]:
    """The indexes of *places* as they are now, cut to what is loaded. Blocks on the disk; raises nothing for it."""
    return [_read_index(place) for place in places]


def index_text(indexes: Sequence[IndexShown]) -> str:
    """What an agent is told of *indexes* before its task; empty if there is nothing in them."""
    shown = "\n\n".join(map(_framed, filter(lambda index: index.text, indexes)))
    return render("memory_index", indexes=shown) if shown else ""


def _read_index(place: MemoryPlace) -> IndexShown:
    try:
        loaded = load_index(Store.at(place.directory).index())
    except (StoreError, OSError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        return IndexShown(place=place, text="", warning=f"cannot be read: {reason}")
    return IndexShown(place=place, text=loaded.text.strip(), warning=loaded.warning)


def _framed(index: IndexShown) -> str:
    # Agents wrote it, perhaps from what a tool told them: it must not end its frame and speak for the user.
    text = index.text.replace("</memory", "<\\/memory")
    of = quoteattr(index.place.title)
    warning = "" if index.warning is None else f"\n[{index.warning}]"
    return f"<memory of={of} index={quoteattr(str(index.place.directory / INDEX))}>\n{text}{warning}\n</memory>"


def _guidelines(path: Path) -> str:
    try:
        content = read_file(path, follow=True)
        text = None if content is None else content.decode().strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise ConfigInvalid(str(path), f"cannot be read: {reason}") from exc
    if not text:
        raise ConfigInvalid(str(path), "is not there or is empty; it is named as memory.guidelines in the settings")
    return text
