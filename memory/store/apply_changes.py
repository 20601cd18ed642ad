"""Application of logged changes to the files and the index, at first or after a crash."""

from collections.abc import Sequence
from contextlib import suppress

from coterie.memory.errors import MemoryRefused
from coterie.memory.store.change import MemoryChange, file_states, group_by_path
from coterie.memory.store.confined_directory import ConfinedDirectory
from coterie.memory.store.memory_index import INDEX, update_index


def apply_changes(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    """Bring *changes* into the files, and the index into step.

    Raises `OSError` and `MemoryRefused`; some files may then hold the old, some the new, and none a part.
    """
    for path, chain in _final_contents(changes):
        _write_file(root, path, chain, chain[-1].after)
    _write_index(root, changes)


def complete_pending(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    """Bring in what a crash left of *changes*; a link or the like in the place of a file is left as it is.

    Raises `OSError`, and `MemoryRefused` if the index cannot be read.
    """
    for path, chain in _final_contents(changes):
        with suppress(MemoryRefused):
            _write_file(root, path, chain, chain[-1].after)
    _write_index(root, changes)


def roll_back(root: ConfinedDirectory, changes: Sequence[MemoryChange], index: bytes | None) -> None:
    """Bring the files back to what they were before *changes*, and the *index*; raises as `complete_pending` does."""
    for path, chain in _final_contents(changes):
        with suppress(MemoryRefused):
            _write_file(root, path, chain, chain[0].before)
    _replace_index(root, root.read(INDEX), index)


def apply_to_index(index: bytes | None, changes: Sequence[MemoryChange]) -> bytes | None:
    """What the index holds after *changes*, done at once; the same if it holds that already."""
    chains = group_by_path(changes)
    own = chains.pop(INDEX, [])
    if own and index in file_states(own):
        index = own[-1].after
    text = decode_index(index)
    after = update_index(text, [change for chain in chains.values() for change in chain])
    return index if after == text else encode_index(after)


def decode_index(index: bytes | None) -> str:
    """An index to work on; whatever is no UTF-8 in it comes out of `encode_index` as it went in."""
    return (index or b"").decode(errors="surrogateescape")


def encode_index(text: str) -> bytes:
    """The reverse of `decode_index`."""
    return text.encode(errors="surrogateescape")


def _final_contents(changes: Sequence[MemoryChange]) -> list[tuple[str, list[MemoryChange]]]:
    return [(path, chain) for path, chain in group_by_path(changes).items() if path != INDEX]


def _write_file(root: ConfinedDirectory, path: str, chain: Sequence[MemoryChange], content: bytes | None) -> None:
    current = root.read(path)
    # What is none of what it was on the way was written past us.
    if current != content and current in file_states(chain):
        root.write(path, content)


def _write_index(root: ConfinedDirectory, changes: Sequence[MemoryChange]) -> None:
    index = root.read(INDEX)
    _replace_index(root, index, apply_to_index(index, changes))


def _replace_index(root: ConfinedDirectory, old: bytes | None, new: bytes | None) -> None:
    if new == old:
        return
    if new is None:
        root.write(INDEX, None)
    else:
        root.append(INDEX, old, new)
