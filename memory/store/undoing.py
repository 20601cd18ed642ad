"""What takes changes back: decided from the history and from what the files hold now."""

from collections.abc import Callable, Sequence

import attrs

from coterie.memory.errors import CannotUndo
from coterie.memory.store.carrying import bytes_of, text_of
from coterie.memory.store.change import Change
from coterie.memory.store.index import INDEX, unmade


@attrs.frozen(kw_only=True)
class Reversal:
    """One file, one step back."""

    undoes: Change
    before: bytes | None
    after: bytes | None


def reversals(history: Sequence[Change], wanted: str, current: Callable[[str], bytes | None]) -> list[Reversal]:
    """How to take back the change or group *wanted*, the newest first.

    Of the index only what the change did to it is taken back; any other file must be as the change left it. Raises
    `CannotUndo`.
    """
    chosen = [change for change in history if change.id == wanted] or [c for c in history if c.group == wanted]
    if not chosen:
        raise CannotUndo(wanted, "is not in the history of this memory")
    files: dict[str, bytes | None] = {}
    steps: list[Reversal] = []
    for change in reversed(chosen):
        now = files[change.path] if change.path in files else current(change.path)
        if now != change.after and change.path != INDEX:
            raise CannotUndo(wanted, _why_not(change, history))
        files[change.path] = _without(change, now)
        steps.append(Reversal(undoes=change, before=now, after=files[change.path]))
    return steps


def _without(change: Change, now: bytes | None) -> bytes | None:
    if change.path != INDEX or now == change.after:
        return change.before
    return bytes_of(unmade(text_of(now), text_of(change.before), text_of(change.after)))


def _why_not(change: Change, history: Sequence[Change]) -> str:
    later = [other for other in history if other.path == change.path and int(other.id) > int(change.id)]
    undone = next((other.id for other in later if other.undoes == change.id), None)
    if undone is not None:
        return f"has been undone already, by change {undone}"
    if not later:
        return f"cannot be undone: {change.path} has been changed since, past the store"
    ids = ", ".join(other.id for other in later)
    return f"cannot be undone: {change.path} has been changed since, by {ids}; undo what came later first"
