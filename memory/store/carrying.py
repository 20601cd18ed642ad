"""Recorded changes are brought into the files and the index; for the first time, or after a crash, it is the same."""

from collections.abc import Sequence
from contextlib import suppress

from coterie.memory.errors import MemoryRefused
from coterie.memory.store.change import Change, by_path, states
from coterie.memory.store.confined import Confined
from coterie.memory.store.index import INDEX, followed


def carry_out(root: Confined, changes: Sequence[Change]) -> None:
    """Bring *changes* into the files, and the index into step.

    Raises `OSError` and `MemoryRefused`; some files may then hold the old, some the new, and none a part.
    """
    for path, chain in _files(changes):
        _bring(root, path, chain, chain[-1].after)
    _bring_index(root, changes)


def finish(root: Confined, changes: Sequence[Change]) -> None:
    """Bring in what a crash left of *changes*; a link or the like in the place of a file is left as it is.

    Raises `OSError`, and `MemoryRefused` if the index cannot be read.
    """
    for path, chain in _files(changes):
        with suppress(MemoryRefused):
            _bring(root, path, chain, chain[-1].after)
    _bring_index(root, changes)


def take_back(root: Confined, changes: Sequence[Change], index: bytes | None) -> None:
    """Bring the files back to what they were before *changes*, and the *index*; raises as `finish` does."""
    for path, chain in _files(changes):
        with suppress(MemoryRefused):
            _bring(root, path, chain, chain[0].before)
    _put_index(root, root.read(INDEX), index)


def index_after(index: bytes | None, changes: Sequence[Change]) -> bytes | None:
    """What the index holds after *changes*, done at once; the same if it holds that already."""
    chains = by_path(changes)
    own = chains.pop(INDEX, [])
    if own and index in states(own):
        index = own[-1].after
    text = text_of(index)
    after = followed(text, [change for chain in chains.values() for change in chain])
    return index if after == text else bytes_of(after)


def text_of(index: bytes | None) -> str:
    """An index to work on; whatever is no UTF-8 in it comes out of `bytes_of` as it went in."""
    return (index or b"").decode(errors="surrogateescape")


def bytes_of(text: str) -> bytes:
    """The reverse of `text_of`."""
    return text.encode(errors="surrogateescape")


def _files(changes: Sequence[Change]) -> list[tuple[str, list[Change]]]:
    return [(path, chain) for path, chain in by_path(changes).items() if path != INDEX]


def _bring(root: Confined, path: str, chain: Sequence[Change], content: bytes | None) -> None:
    current = root.read(path)
    # What is none of what it was on the way was written past us.
    if current != content and current in states(chain):
        root.put(path, content)


def _bring_index(root: Confined, changes: Sequence[Change]) -> None:
    index = root.read(INDEX)
    _put_index(root, index, index_after(index, changes))


def _put_index(root: Confined, old: bytes | None, new: bytes | None) -> None:
    if new == old:
        return
    if new is None:
        root.put(INDEX, None)
    else:
        root.grow(INDEX, old, new)
