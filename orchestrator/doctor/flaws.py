"""Lines of a log that cannot be read: torn ones, which every crash may leave, and damaged ones, which none does."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.files import Appender, sync_directory
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.session import Session

ASIDE = ".torn"
"""Ends the name of the file in which a torn end is kept."""

Check = Callable[[bytes], object]
"""Raises `ValueError` for a line that is not as it was written."""


@attrs.frozen(kw_only=True)
class Flaw:
    """A line that cannot be read."""

    line: int
    """The first is 1; blank ones count."""
    reason: str
    is_torn: bool
    """It is the beginning of something: a write did not come to its end."""
    is_last: bool
    """Nothing was written behind it, not even the end of the line."""


def find_flaws(path: Path, check: Check) -> Iterator[Flaw]:
    """The lines of *path* that *check* refuses; none of a file that is not there. Raises `OSError`."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            line = content.removesuffix(b"\n")
            try:
                if line:
                    check(line)
            except ValueError as exc:
                yield Flaw(line=number, reason=str(exc), is_torn=_is_torn(line), is_last=line == content)


def flaw_finding(session: Session, path: Path, flaw: Flaw, loss: str) -> Finding:
    """A line that its readers pass over; *loss* is what a damaged one takes away."""
    where = f"{path}:{flaw.line}"
    if not flaw.is_torn:
        return damage(session, where, flaw.reason, advice=loss)
    what = "a write was torn here; whoever reads passes over it"
    return Finding(kind="torn_record", where=where, what=what, session=session.id, is_harmless=True)


def damage(session: Session, where: object, reason: str, *, advice: str) -> Finding:
    """A record that cannot be read, and is left as it is."""
    what = f"it cannot be read: {reason}"
    return Finding(kind="damaged_record", where=str(where), what=what, session=session.id, advice=advice)


def torn_end(session: Session, path: Path) -> Finding:
    """A log that nobody writes, and that ends in the middle of a line."""
    return Finding(
        kind="torn_record",
        where=str(path),
        what="the last write was torn; what was recorded before is whole",
        session=session.id,
        remedy=Remedy(
            words=f"set the torn end aside in {path.name}{ASIDE}",
            apply=partial(trio.to_thread.run_sync, _set_aside_sync, session, path),
        ),
    )


def _is_torn(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (ValueError, RecursionError) as exc:
        return line.startswith(b"{") and "truncated" in str(exc)
    return False


def _set_aside_sync(session: Session, path: Path) -> None:
    """Keep what stands behind the last line in a file of its own before it is cut off here."""
    if is_running(session):
        raise NotMended(f"session {session.id} runs again")
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    if size < len(content):
        with Appender.open(path.with_name(path.name + ASIDE)) as aside:
            aside.append(content[size:] + b"\n")
            aside.sync()
        sync_directory(path.parent)
        with Appender.open(path) as log:
            log.cut(size)
