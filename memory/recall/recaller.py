"""Recall from several stores: survey, candidates for a model, and local ranking."""

import heapq
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import attrs

from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.bm25 import Bm25Ranker
from coterie.memory.recall.memory_excerpt import LoadedMemory, load_memories
from coterie.memory.recall.store_scan import ScannedFile, ScannedMemory, list_memories, scan_files

Between = Callable[[], object]
"""Called now and then in what may take long; what it raises ends it."""


@attrs.frozen
class MemoryLocation:
    """A memory in one of several stores."""

    directory: Path
    path: str
    """Relative to the directory."""

    @property
    def file(self) -> Path:
        """Where it is, as tools call it: links of the directory are followed."""
        return Path(os.path.realpath(self.directory)) / self.path


@attrs.frozen(kw_only=True)
class Survey:
    """The memories that there are."""

    files: dict[MemoryLocation, ScannedFile]
    """Those that may be recalled."""
    left_out: list[MemoryLocation]
    """Those that the model knows already."""


@attrs.define(eq=False)
class Recaller:
    """Looks into stores by their directories. Blocks, and serves one thread at a time; must be closed.

    Nothing raises for a store that cannot be read: it has no memories. Rankers raise `sqlite3.Error`.
    """

    _directories: Sequence[Path]
    _settings: RecallSettings
    _rankers: dict[Path, Bm25Ranker] = attrs.field(factory=dict, init=False)

    def survey(self, known: Collection[str]) -> Survey:
        """All memories but those whose file is *known*."""
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
        """What a model can choose from, the newest first, by the names it is to call them by; see `name_locations`.

        Of more than it can be shown, those that fit *query* best.
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
        """Names for *places*: their paths, and for all but the first store the name of its directory before them."""
        names: dict[str, MemoryLocation] = {}
        for place in places:
            number = self._directories.index(place.directory)
            names[place.path if number == 0 else f"{place.directory.name}:{number}/{place.path}"] = place
        return names

    def rank(self, query: str, survey: Survey, between: Between, most: int) -> list[MemoryLocation]:
        """The *most* memories of *survey* that have the words of *query*, by the local ranker, the best first."""
        found: list[tuple[float, MemoryLocation]] = []
        for directory in self._directories:
            known = sum(place.directory == directory for place in survey.left_out)
            ranker = self._ranker(directory)
            ranker.refresh(between)
            ranked = ((one.score, MemoryLocation(directory, one.path)) for one in ranker.rank(query, most + known))
            found += [(score, place) for score, place in ranked if place in survey.files]
        return [place for _, place in heapq.nlargest(most, found, key=lambda pair: pair[0])]

    def load(self, places: Sequence[MemoryLocation]) -> dict[MemoryLocation, LoadedMemory]:
        """The beginnings of *places*, in that order; what is gone or is no text is left out."""
        loaded = {place: load_memories(place.directory, [place.path], self._settings) for place in places}
        return {place: memories[0] for place, memories in loaded.items() if memories}

    def close(self) -> None:
        """Let go of all caches."""
        for ranker in self._rankers.values():
            ranker.close()
        self._rankers.clear()

    def _ranker(self, directory: Path) -> Bm25Ranker:
        if directory not in self._rankers:
            self._rankers[directory] = Bm25Ranker.open(directory)
        return self._rankers[directory]
