"""Application of hunks, the line changes of a dream (memory consolidation), to a store: safe ones or approved ones."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from coterie.memory.dreaming.classify import DEPENDS, KeptFacts, approved_losses, lost_facts, select_safe
from coterie.memory.dreaming.dream_change import DreamChange, save_change
from coterie.memory.dreaming.hunks import DreamFile, Hunk, HunkState
from coterie.memory.dreaming.statements import split_lines
from coterie.memory.dreaming.working_copy import read_store_texts
from coterie.memory.layer_settings import DeletionPolicy
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import ApplyResult, MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import PendingEdit


def _apply_index_hunks(current: str, file: DreamFile, hunks: Sequence[Hunk]) -> tuple[str, list[Hunk]]:
    """Return the index text *current* after *hunks*, and the hunks left out: their old line is missing or repeated."""
    lines, base = split_lines(current), split_lines(file.base or "")
    dropped: list[Hunk] = []
    # From the end, so that the line before an insertion still exists, and insertions at one place keep their order.
    for hunk in sorted(hunks, key=lambda hunk: hunk.start)[::-1]:
        if not hunk.removed:
            _insert(lines, hunk, base)
        elif lines.count(hunk.removed[0]) == 1:
            at = lines.index(hunk.removed[0])
            lines[at : at + 1] = hunk.added
        elif hunk.added or hunk.removed[0] in lines:  # otherwise the line was removed together with its memory
            dropped.append(hunk)
    return "".join(lines), dropped


def _insert(lines: list[str], hunk: Hunk, base: Sequence[str]) -> None:
    """Insert *hunk*'s new line, if missing, after the line before it in *base*: first if none, last if that is gone."""
    if any(line in lines for line in hunk.added):
        return
    before = base[hunk.start - 1] if hunk.start else None
    at = lines.index(before) + 1 if before in lines else 0 if hunk.start == 0 else len(lines)
    if at and not lines[at - 1].endswith("\n"):
        lines[at - 1] += "\n"
    added = [line if line.endswith("\n") else f"{line}\n" for line in hunk.added]
    lines[at:at] = added


CHANGED = "the file has changed since the dream read it; run a new dream"
TAKEN_BACK = "undone, because the store refused another hunk and a fact would have been lost; run a new dream"


@attrs.frozen(kw_only=True)
class _Plan:
    """Hunks (line changes of a dream) that a caller asked to apply, and those of them that can be applied safely."""

    files: tuple[DreamFile, ...]
    """Files of the dream with at least one waiting hunk that the caller asked to apply."""
    applied: set[int]
    wanted: set[int]
    chosen: set[int]
    """Numbers of the requested hunks that together lose no fact except those in `approved`; these are applied."""
    approved: set[str]
    """Comparison keys (normalized text) of facts that may be lost, because the requested hunks list them as lost."""

    @classmethod
    def of(cls, store: MemoryStore, change: DreamChange, chosen: Collection[int]) -> "_Plan":
        files = tuple(file for file in change.files if file.numbers("waiting").intersection(chosen))
        wanted, applied = _numbers(files, "waiting").intersection(chosen), _numbers(files, "applied")
        approved = approved_losses(files, wanted | applied)
        left = select_safe(files, wanted | applied, KeptFacts.of(read_store_texts(store), files), approved)
        return cls(files=files, applied=applied, wanted=wanted, chosen=left & wanted, approved=approved)


def auto_approved(change: DreamChange, kept: KeptFacts, deletions: DeletionPolicy) -> set[int]:
    """Return the numbers of the hunks to apply without the user's approval; empty if the change is held back.

    With *deletions* "apply" these are all hunks, otherwise hunks that together remove no fact from the memories.
    """
    if change.held is not None:
        return set()
    if deletions == "apply":
        return {hunk.number for hunk in change.hunks}
    wanted = {hunk.number for hunk in change.hunks if hunk.kind != "deletion"}
    return select_safe(change.files, wanted, kept)


def apply_hunks(store: MemoryStore, change: DreamChange, chosen: Collection[int], author: Author) -> DreamChange:
    """Apply the waiting hunks with the numbers *chosen*; save and return *change* with the new state of each hunk.

    A hunk is dropped if its file, or its line of the index, has changed since the dream. A hunk that would lose a fact
    without approval keeps waiting. The change log of the store records all edits as one group, which can be undone
    together. Blocks. If `MemoryStore.apply` raises, no hunk was applied, and *change* is saved unchanged.
    """
    save_change(store.directory, change)
    change = _drop_outdated(store, change, chosen)
    plan = _Plan.of(store, change, chosen)
    change = _set_state(change, dict.fromkeys(plan.wanted - plan.chosen, DEPENDS), "waiting")
    edits, unmade = _edits(store, plan)
    change = _set_state(change, unmade, "dropped")
    if edits:
        change = _after(store, change, plan, store.apply(edits, author, group=change.group), author)
    change = _set_state(change, dict.fromkeys(_numbers(change.files, "waiting") & plan.chosen, ""), "applied")
    save_change(store.directory, change)
    return change


def reject_hunks(store: MemoryStore, change: DreamChange) -> DreamChange:
    """Set all waiting hunks of *change*, a dream's proposal, to "rejected"; save and return it. Raises `OSError`."""
    change = _set_state(change, dict.fromkeys(_numbers(change.files, "waiting"), ""), "rejected")
    save_change(store.directory, change)
    return change


def _drop_outdated(store: MemoryStore, change: DreamChange, chosen: Collection[int]) -> DreamChange:
    """Return *change* with *chosen* hunks "applied" if their file contains them, "dropped" if it changed otherwise."""
    for file in change.files:
        numbers = {hunk.number for hunk in file.hunks} & set(chosen) & file.numbers("waiting")
        if not numbers or file.path == INDEX:
            continue
        applied, current = file.numbers("applied"), store.read(file.path)
        if current == _encoded(file.text(applied | numbers)):
            # Written by a process that was killed before it recorded the result.
            change = _set_state(change, dict.fromkeys(numbers, ""), "applied")
        elif current != _encoded(file.text(applied)):
            change = _set_state(change, dict.fromkeys(numbers, CHANGED), "dropped")
    return change


def _edits(store: MemoryStore, plan: _Plan) -> tuple[list[PendingEdit], dict[int, str]]:
    """Return the file edits of *plan*, deletions last, and the reasons, by number, of index hunks that do not fit."""
    edits: list[PendingEdit] = []
    unmade: dict[int, str] = {}
    for file in plan.files:
        if file.path == INDEX:
            current = store.read(INDEX)
            hunks = [hunk for hunk in file.hunks if hunk.number in plan.chosen]
            text, dropped = _apply_index_hunks((current or b"").decode(errors="replace"), file, hunks)
            unmade |= {hunk.number: CHANGED for hunk in dropped}
            content = _encoded(text or None)
        else:
            current = _encoded(file.text(plan.applied))
            content = _encoded(file.text(plan.applied | plan.chosen))
        if content != current:
            edits.append(PendingEdit(path=file.path, base=current, content=content))
    return sorted(edits, key=lambda edit: edit.content is None), unmade


def _after(store: MemoryStore, change: DreamChange, plan: _Plan, result: ApplyResult, author: Author) -> DreamChange:
    """Return *change* with hunks of refused edits "dropped"; if that loses a fact, undo the others and drop them."""
    reasons = {edit.path: reason for edit, reason in result.dropped}
    if not reasons:
        return change
    dropped = {
        hunk.number: reasons[file.path]
        for file in plan.files
        for hunk in file.hunks
        if file.path in reasons and hunk.number in plan.chosen
    }
    change = _set_state(change, dropped, "dropped")
    active = [file for file in plan.files if file.path not in reasons]
    done = plan.chosen - dropped.keys()
    lost = lost_facts(active, plan.applied | done, KeptFacts.of(read_store_texts(store), active))
    if not lost <= plan.approved:
        for made in reversed(result.changes):
            store.undo(made.id, author)
        change = _set_state(change, dict.fromkeys(done, TAKEN_BACK), "dropped")
    return change


def _set_state(change: DreamChange, reasons: Mapping[int, str], state: HunkState) -> DreamChange:
    """Return a copy of *change* in which the hunks numbered in *reasons* have *state* and the reason given there."""

    def update(hunk: Hunk) -> Hunk:
        if hunk.number not in reasons:
            return hunk
        return attrs.evolve(hunk, state=state, reason=reasons[hunk.number])

    return change.with_hunks(update)


def _numbers(files: Iterable[DreamFile], state: HunkState) -> set[int]:
    return {number for file in files for number in file.numbers(state)}


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
