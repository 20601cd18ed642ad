"""Recall from several stores: a survey, candidates for a model, and local ranking."""

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
    """The beginning of a memory file."""

    text: str
    size: int
    """Size of the whole memory file in bytes."""
    modified: float
    """Modification time in seconds since the epoch."""
    is_cut: bool

    def render(self, place: Path, now: float, stale_days: int) -> str:
        """Return the text that the model reads; *place* is the path of the file."""
        age = age_text(now - self.modified)
        lines = [f"<memory path={quoteattr(str(place))} saved={quoteattr(age)}>"]
        if now - self.modified >= stale_days * DAY:
            lines.append(f"[Saved {age}: it may no longer be true. Check it before you rely on it.]")
        lines.append(escape(self.text))
        if self.is_cut:
            lines.append(f"[cut: {self.size:,} bytes in all; Read shows the rest]")
        return "\n".join([*lines, "</memory>"])


def load_memory(directory: Path, path: str, settings: RecallSettings) -> LoadedMemory | None:
    """Load the beginning of the file *path*; None if it was deleted or is not text. Blocks."""
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
    """Return an age for people; a time in the future, after a clock was set back, is "today"."""
    days = max(0, int(seconds // DAY))
    if days < 2:
        return "yesterday" if days else "today"
    if days < 2 * MONTH:
        return f"{days} days ago"
    return f"{days // MONTH} months ago" if days < 2 * YEAR else f"{days // YEAR} years ago"


def _cut(content: bytes, settings: RecallSettings) -> bytes:
    """Cut *content* at the end of a line to the limits of *settings*; a single longer line is cut inside."""
    start = b"".join(content.splitlines(keepends=True)[: settings.file_lines])
    if len(start) <= settings.file_bytes:
        return start
    end = start.rfind(b"\n", 0, settings.file_bytes) + 1
    return start[:end] if end else start[: settings.file_bytes].decode(errors="ignore").encode()


Between = Callable[[], object]
"""Callback of long operations; an exception that it raises ends the operation."""


@attrs.frozen
class MemoryLocation:
    """A memory in one of several stores."""

    directory: Path
    path: str
    """Path of the memory, relative to the directory of its store."""

    @property
    def file(self) -> Path:
        """Absolute path as tools use it, with the links of the directory resolved."""
        return Path(os.path.realpath(self.directory)) / self.path


@attrs.frozen(kw_only=True)
class Survey:
    """The memories of all stores, divided into known and unknown ones."""

    files: dict[MemoryLocation, ScannedFile]
    """Memories that may be recalled."""
    left_out: list[MemoryLocation]
    """Memories that the model already knows."""


@attrs.define(eq=False)
class Recaller:
    """Recalls memories from the stores in several directories. Blocks; serves one thread at a time; must be closed.

    A store that cannot be read counts as empty. Rankers raise `sqlite3.Error`.
    """

    _directories: Sequence[Path]
    _settings: RecallSettings
    _rankers: dict[Path, Bm25Ranker] = attrs.field(factory=dict, init=False)

    def survey(self, known: Collection[str]) -> Survey:
        """List all memories; those whose file is *known* are left out of recall."""
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
        """Return the memories that a model selects from, newest first, by the names of `name_locations`.

        If there are more than the limit, those that match *query* best.
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
        """Name *places* by their paths; all but the first store prefix the name and number of their directory."""
        names: dict[str, MemoryLocation] = {}
        for place in places:
            number = self._directories.index(place.directory)
            names[place.path if number == 0 else f"{place.directory.name}:{number}/{place.path}"] = place
        return names

    def rank(self, query: str, survey: Survey, between: Between, most: int) -> list[MemoryLocation]:
        """Rank the memories in `survey.files` for *query* with the local ranker; return at most *most*, best first."""
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
        """Load the beginnings of *places*, in that order; deleted files and files that are not text are skipped."""
        loaded = ((place, load_memory(place.directory, place.path, self._settings)) for place in places)
        return {place: memory for place, memory in loaded if memory is not None}

    def close(self) -> None:
        """Close the search indexes of all stores."""
        for ranker in self._rankers.values():
            ranker.close()
        self._rankers.clear()
