"""What the files of a store should hold, from its history alone."""

from collections.abc import Iterable, Sequence

import attrs

from coterie.memory.store.carrying import bytes_of, text_of
from coterie.memory.store.change import Change, by_path
from coterie.memory.store.index import INDEX, followed, index_lines, is_memory


def replayed(batches: Iterable[Sequence[Change]]) -> dict[str, bytes]:
    """What the files of a store hold if nobody has written past it since, by path; the index among them."""
    files: dict[str, bytes | None] = {}
    index = _Index()
    for changes in batches:
        for change in changes:
            files[change.path] = change.after
            if change.path == INDEX:
                index.replace(change.after)
        for chain in by_path(changes).values():
            for change in chain:
                index.follow(change)
    files[INDEX] = index.content
    return {path: content for path, content in files.items() if content is not None}


@attrs.define(eq=False)
class _Index:
    """As `carrying.index_after`, for thousands of changes: a memory that comes costs its own line, not the others'."""

    _pieces: list[str] | None = None
    """None: there is no index."""
    _linked: set[str] = attrs.field(factory=set)

    @property
    def content(self) -> bytes | None:
        """What the file holds."""
        return None if self._pieces is None else bytes_of("".join(self._pieces))

    def replace(self, content: bytes | None) -> None:
        """Somebody wrote it, or deleted it."""
        self._pieces = None if content is None else [text_of(content)]
        self._linked = {entry.path for entry in index_lines(text_of(content))}

    def follow(self, change: Change) -> None:
        """A memory came, changed or went."""
        pieces = self._pieces or [""]
        is_linked = change.path in self._linked
        if not is_memory(change.path) or (change.after is None and not is_linked):
            return
        if change.after is None:
            self._pieces = [followed("".join(pieces), [change])]
            self._linked.discard(change.path)
        elif not pieces[-1].endswith("\n"):
            self._pieces = [followed("".join(pieces), [change])]
            self._linked.add(change.path)
        elif not is_linked:
            pieces.append(followed("", [change]))
            self._linked.add(change.path)
