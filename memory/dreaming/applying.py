"""A dream's hunks become memories: what loses nothing at once, the rest when the user says so."""

from collections.abc import Collection, Iterable, Mapping

import attrs

from coterie.memory.dreaming.change import Deletions, DreamChange, save_change
from coterie.memory.dreaming.copy import texts_of
from coterie.memory.dreaming.hunks import DreamFile, Hunk, HunkState
from coterie.memory.dreaming.indexing import index_with
from coterie.memory.dreaming.judging import DEPENDS, Kept, keys_approved, keys_lost, safe
from coterie.memory.store.change import Author
from coterie.memory.store.index import INDEX
from coterie.memory.store.store import Applied, Edit, Store

CHANGED = "the file has changed since the dream saw it"
TAKEN_BACK = "the store refused another hunk, without which something would have been lost"


@attrs.frozen(kw_only=True)
class _Plan:
    """What is about to be applied."""

    files: tuple[DreamFile, ...]
    """Those with a hunk that is wanted; all others are what stands in the store."""
    applied: set[int]
    wanted: set[int]
    chosen: set[int]
    """Those that are wanted and lose nothing but what is approved."""
    approved: set[str]
    """The keys of what may be lost."""

    @classmethod
    def of(cls, store: Store, change: DreamChange, chosen: Collection[int]) -> "_Plan":
        files = tuple(file for file in change.files if file.numbers("waiting").intersection(chosen))
        wanted, applied = _numbers(files, "waiting").intersection(chosen), _numbers(files, "applied")
        approved = keys_approved(files, wanted | applied)
        left = safe(files, wanted | applied, Kept.of(texts_of(store), files), approved)
        return cls(files=files, applied=applied, wanted=wanted, chosen=left & wanted, approved=approved)


def chosen_at_once(change: DreamChange, kept: Kept, deletions: Deletions) -> set[int]:
    """The hunks that need no approval: with deletions left to the user, those that lose nothing together."""
    if change.held is not None:
        return set()
    if deletions == "apply":
        return {hunk.number for hunk in change.hunks}
    wanted = {hunk.number for hunk in change.hunks if hunk.kind != "deletion"}
    return safe(change.files, wanted, kept)


def apply_hunks(store: Store, change: DreamChange, chosen: Collection[int], author: Author) -> DreamChange:
    """Apply those *chosen* hunks of *change* that wait, and keep what became of each.

    Hunks of a file that is not what it should be are dropped, and others wait with them that would then lose
    something which nobody approved. All that is applied is of one group in the store's history. Blocks. Raises as
    `Store.apply` does; nothing was applied then, and the change is kept as it was given.
    """
    save_change(store.directory, change)
    change = _with_dropped(store, change, chosen)
    plan = _Plan.of(store, change, chosen)
    change = _put(change, dict.fromkeys(plan.wanted - plan.chosen, DEPENDS), "waiting")
    edits, unmade = _edits(store, plan)
    change = _put(change, unmade, "dropped")
    if edits:
        change = _after(store, change, plan, store.apply(edits, author, group=change.group), author)
    change = _put(change, dict.fromkeys(_numbers(change.files, "waiting") & plan.chosen, ""), "applied")
    save_change(store.directory, change)
    return change


def reject_hunks(store: Store, change: DreamChange) -> DreamChange:
    """Let nothing that waits of *change* be applied any more. Blocks. Raises `OSError`."""
    change = _put(change, dict.fromkeys(_numbers(change.files, "waiting"), ""), "rejected")
    save_change(store.directory, change)
    return change


def _with_dropped(store: Store, change: DreamChange, chosen: Collection[int]) -> DreamChange:
    """*change* without the hunks whose files are no longer what they should be; those that are there are applied."""
    for file in change.files:
        numbers = {hunk.number for hunk in file.hunks} & set(chosen) & file.numbers("waiting")
        if not numbers or file.path == INDEX:
            continue
        applied, current = file.numbers("applied"), store.read(file.path)
        if current == _encoded(file.text(applied | numbers)):  # by a run that was killed before it could say so
            change = _put(change, dict.fromkeys(numbers, ""), "applied")
        elif current != _encoded(file.text(applied)):
            change = _put(change, dict.fromkeys(numbers, CHANGED), "dropped")
    return change


def _edits(store: Store, plan: _Plan) -> tuple[list[Edit], dict[int, str]]:
    """The edits of *plan*, and which of its hunks cannot be made. Files that go come last."""
    edits: list[Edit] = []
    unmade: dict[int, str] = {}
    for file in plan.files:
        if file.path == INDEX:
            current = store.read(INDEX)
            hunks = [hunk for hunk in file.hunks if hunk.number in plan.chosen]
            indexed = index_with((current or b"").decode(errors="replace"), file, hunks)
            unmade |= {hunk.number: CHANGED for hunk in indexed.dropped}
            content = _encoded(indexed.text or None)
        else:
            current = _encoded(file.text(plan.applied))
            content = _encoded(file.text(plan.applied | plan.chosen))
        if content != current:
            edits.append(Edit(path=file.path, base=current, content=content))
    return sorted(edits, key=lambda edit: edit.content is None), unmade


def _after(store: Store, change: DreamChange, plan: _Plan, result: Applied, author: Author) -> DreamChange:
    """*change* after the store has dropped some edits; all is taken back if something is lost by that."""
    reasons = {edit.path: reason for edit, reason in result.dropped}
    if not reasons:
        return change
    dropped = {
        hunk.number: reasons[file.path]
        for file in plan.files
        for hunk in file.hunks
        if file.path in reasons and hunk.number in plan.chosen
    }
    change = _put(change, dropped, "dropped")
    active = [file for file in plan.files if file.path not in reasons]
    done = plan.chosen - dropped.keys()
    lost = keys_lost(active, plan.applied | done, Kept.of(texts_of(store), active))
    if not lost <= plan.approved:
        for made in reversed(result.changes):
            store.undo(made.id, author)
        change = _put(change, dict.fromkeys(done, TAKEN_BACK), "dropped")
    return change


def _put(change: DreamChange, reasons: Mapping[int, str], state: HunkState) -> DreamChange:
    """*change* with the hunks of *reasons* in *state*."""

    def update(hunk: Hunk) -> Hunk:
        if hunk.number not in reasons:
            return hunk
        return attrs.evolve(hunk, state=state, reason=reasons[hunk.number])

    return change.with_hunks(update)


def _numbers(files: Iterable[DreamFile], state: HunkState) -> set[int]:
    return {number for file in files for number in file.numbers(state)}


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
