"""Recall of memories from several stores: they are listed, ranked for a query, and loaded to be shown to a model."""

import heapq
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import attrs

from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.bm25 import Bm25Ranker
from coterie.memory.recall.store_scan import (
    ScannedFile,
    ScannedMemory,
    list_memories,
    open_memories,
    read_head,
    scan_files,
)

DAY = 86_400
MONTH = 30
YEAR = 365


@attrs.frozen(kw_only=True)
class LoadedMemory:
    """The beginning of a memory file, as a model reads it, with the size and time of the whole file."""

    text: str
    size: int
    """Size of the whole memory file in bytes."""
    modified: float
    """Modification time of the file, in seconds since the epoch."""
    is_cut: bool

    def render(self, place: Path, now: float, stale_days: int) -> str:
        """Return the memory as text for a model, with its path *place*, its age, and a warning if it is old or cut."""
        age = age_text(now - self.modified)
        lines = [f"<memory path={quoteattr(str(place))} saved={quoteattr(age)}>"]
        if now - self.modified >= stale_days * DAY:
            lines.append(f"[Saved {age}: it may no longer be true. Check it before you rely on it.]")
        lines.append(escape(self.text))
        if self.is_cut:
            lines.append(f"[cut: {self.size:,} bytes in all; Read shows the rest]")
        return "\n".join([*lines, "</memory>"])


def load_memory(directory: Path, path: str, settings: RecallSettings) -> LoadedMemory | None:
    """Load the beginning of the memory *path* of the store *directory*; None if missing, unreadable or not text."""
    with open_memories(directory) as memories:
        content = None if memories is None else read_head(memories, path, settings.file_bytes + 1)
    if content is None or b"\0" in content:
        return None
    try:
        status = (directory / path).lstat()
    except OSError:
        return None
    text = _cut(content, settings)
    return LoadedMemory(
        text=text.decode(errors="replace").strip("\n"),
        size=status.st_size,
        modified=status.st_mtime,
        is_cut=len(text) < status.st_size,
    )


def age_text(seconds: float) -> str:
    """Return an age in words, such as `3 days ago`; a negative age, after a clock was set back, is `today`."""
    days = max(0, int(seconds // DAY))
    if days < 2:
        return "yesterday" if days else "today"
    if days < 2 * MONTH:
        return f"{days} days ago"
    return f"{days // MONTH} months ago" if days < 2 * YEAR else f"{days // YEAR} years ago"


def _cut(content: bytes, settings: RecallSettings) -> bytes:
    """Return the first lines of *content*, within the limits of *settings*; a single longer line is cut inside."""
    start = b"".join(content.splitlines(keepends=True)[: settings.file_lines])
    if len(start) <= settings.file_bytes:
        return start
    end = start.rfind(b"\n", 0, settings.file_bytes) + 1
    return start[:end] if end else start[: settings.file_bytes].decode(errors="ignore").encode()


Between = Callable[[], object]
"""Callback that a long operation calls from time to time; an exception that it raises ends the operation."""


@attrs.frozen
class MemoryLocation:
    """Location of a memory: the directory of its store, and its path in this directory."""

    directory: Path
    path: str
    """Path of the memory file, relative to the directory of its store."""

    @property
    def file(self) -> Path:
        """Absolute path of the memory file, without links, in the form in which agents record files that they read."""
        return Path(os.path.realpath(self.directory)) / self.path


@attrs.frozen(kw_only=True)
class Survey:
    """The memories of all stores, divided into those that may be recalled and those already in the model's context."""

    files: dict[MemoryLocation, ScannedFile]
    """Memories that may be recalled, with the metadata of their files."""
    left_out: list[MemoryLocation]
    """Memories that are not recalled, because their content is in the model's context already."""


@attrs.define(eq=False)
class Recaller:
    """Finder and loader of memories in several stores. Methods block and serve one thread at a time; must be closed.

    A store that cannot be read counts as empty. The methods that rank memories raise `sqlite3.Error`.
    """

    _directories: Sequence[Path]
    _settings: RecallSettings
    _rankers: dict[Path, Bm25Ranker] = attrs.field(factory=dict, init=False)

    def survey(self, known: Collection[str]) -> Survey:
        """List the memories of all stores; those whose absolute path is in *known* are not recalled (`left_out`)."""
        survey = Survey(files={}, left_out=[])
        for directory in self._directories:
            real = os.path.realpath(directory)
            for file in list_memories(directory):
                place = MemoryLocation(directory, file.path)
                if f"{real}/{file.path}" in known:
                    survey.left_out.append(place)
                else:
                    survey.files[place] = file
        return survey

    def candidates(self, query: str, survey: Survey, between: Between) -> dict[str, ScannedMemory]:
        """Return the memories from which a model selects, newest first: a dict of descriptions by unique name.

        If there are more than the setting `scan` allows, only those that match *query* best are returned.
        """
        places = list(survey.files)
        if len(places) > self._settings.scan:
            places = self.rank(query, survey, between, self._settings.scan)
        places.sort(key=lambda place: -survey.files[place].modified)
        names = {place: name for name, place in self.name_locations(places).items()}
        offered: dict[MemoryLocation, ScannedMemory] = {}
        for directory in self._directories:
            files = [survey.files[place] for place in places if place.directory == directory]
            offered |= {MemoryLocation(directory, scanned.path): scanned for scanned in scan_files(directory, files)}
        return {names[place]: offered[place] for place in places if place in offered}

    def name_locations(self, places: Sequence[MemoryLocation]) -> dict[str, MemoryLocation]:
        """Return *places* by a unique name: the path, after a prefix such as `memory:1/` except in the first store."""
        names: dict[str, MemoryLocation] = {}
        for place in places:
            number = self._directories.index(place.directory)
            names[place.path if number == 0 else f"{place.directory.name}:{number}/{place.path}"] = place
        return names

    def rank(self, query: str, survey: Survey, between: Between, most: int) -> list[MemoryLocation]:
        """Return at most *most* memories of `survey.files` that match the words of *query* (BM25), best first."""
        found: list[tuple[float, MemoryLocation]] = []
        for directory in self._directories:
            known = sum(place.directory == directory for place in survey.left_out)
            if directory not in self._rankers:
                self._rankers[directory] = Bm25Ranker.open(directory)
            ranker = self._rankers[directory]
            ranker.refresh(between)
            ranked = ((one.score, MemoryLocation(directory, one.path)) for one in ranker.rank(query, most + known))
            found += [(score, place) for score, place in ranked if place in survey.files]
        return [place for _, place in heapq.nlargest(most, found, key=lambda pair: pair[0])]

    def load(self, places: Sequence[MemoryLocation]) -> dict[MemoryLocation, LoadedMemory]:
        """Load the beginning of each memory in *places*, in that order; omit missing files and files without text."""
        loaded = ((place, load_memory(place.directory, place.path, self._settings)) for place in places)
        return {place: memory for place, memory in loaded if memory is not None}

    def close(self) -> None:
        """Close the search indexes of all stores."""
        for ranker in self._rankers.values():
            ranker.close()
        self._rankers.clear()
