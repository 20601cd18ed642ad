"""Looks for memories in several stores: what there is, what a model could choose from, what the local ranker would."""

import heapq
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import attrs

from coterie.memory.recall.files import MemoryFile, list_memories
from coterie.memory.recall.limits import RecallLimits
from coterie.memory.recall.loading import LoadedMemory, load_memories
from coterie.memory.recall.local import LocalRanker
from coterie.memory.recall.scan import Scanned, scan_files

Between = Callable[[], object]
"""Called now and then in what may take long; what it raises ends it."""


@attrs.frozen
class Place:
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

    files: dict[Place, MemoryFile]
    """Those that may be recalled."""
    left_out: list[Place]
    """Those that the model knows already."""


@attrs.define(eq=False)
class Recaller:
    """Looks into stores by their directories. Blocks, and serves one thread at a time; must be closed.

    Nothing raises for a store that cannot be read: it has no memories. Rankers raise `sqlite3.Error`.
    """

    _directories: Sequence[Path]
    _limits: RecallLimits
    _rankers: dict[Path, LocalRanker] = attrs.field(factory=dict, init=False)

    def survey(self, known: Collection[str]) -> Survey:
        """All memories but those whose file is *known*."""
        survey = Survey(files={}, left_out=[])
        for directory in self._directories:
            real = os.path.realpath(directory)
            for file in list_memories(directory):
                place = Place(directory, file.path)
                if f"{real}/{file.path}" in known:
                    survey.left_out.append(place)
                else:
                    survey.files[place] = file
        return survey

    def offer(self, query: str, survey: Survey, between: Between) -> dict[str, Scanned]:
        """What a model can choose from, the newest first, by the names it is to call them by; see `places_of`.

        Of more than it can be shown, those that fit *query* best.
        """
        places = list(survey.files)
        if len(places) > self._limits.scan:
            places = self.rank(query, survey, between, self._limits.scan)
        places.sort(key=lambda place: -survey.files[place].modified)
        names = {place: name for name, place in self.places_of(places).items()}
        offered: dict[Place, Scanned] = {}
        for directory in self._directories:
            files = [survey.files[place] for place in places if place.directory == directory]
            offered |= {Place(directory, scanned.path): scanned for scanned in scan_files(directory, files)}
        return {names[place]: offered[place] for place in places if place in offered}

    def places_of(self, places: Sequence[Place]) -> dict[str, Place]:
        """Names for *places*: their paths, and for all but the first store the name of its directory before them."""
        names: dict[str, Place] = {}
        for place in places:
            number = self._directories.index(place.directory)
            names[place.path if number == 0 else f"{place.directory.name}:{number}/{place.path}"] = place
        return names

    def rank(self, query: str, survey: Survey, between: Between, most: int) -> list[Place]:
        """The *most* memories of *survey* that have the words of *query*, by the local ranker, the best first."""
        found: list[tuple[float, Place]] = []
        for directory in self._directories:
            known = sum(place.directory == directory for place in survey.left_out)
            ranker = self._ranker(directory)
            ranker.refresh(between)
            ranked = ((one.score, Place(directory, one.path)) for one in ranker.rank(query, most + known))
            found += [(score, place) for score, place in ranked if place in survey.files]
        return [place for _, place in heapq.nlargest(most, found, key=lambda pair: pair[0])]

    def load(self, places: Sequence[Place]) -> dict[Place, LoadedMemory]:
        """The beginnings of *places*, in that order; what is gone or is no text is left out."""
        loaded = {place: load_memories(place.directory, [place.path], self._limits) for place in places}
        return {place: memories[0] for place, memories in loaded.items() if memories}

    def close(self) -> None:
        """Let go of all caches."""
        for ranker in self._rankers.values():
            ranker.close()
        self._rankers.clear()

    def _ranker(self, directory: Path) -> LocalRanker:
        if directory not in self._rankers:
            self._rankers[directory] = LocalRanker.open(directory)
        return self._rankers[directory]
