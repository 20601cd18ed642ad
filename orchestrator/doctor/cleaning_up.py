"""The last thing done for a root that was killed: the session's records are mended, and its log says what was done.

`python -P -m coterie.orchestrator.doctor.cleaning_up SESSION ENDED` is what the janitor becomes once no process is
left. ENDED is what it has done about these, its `Ended`, as JSON.
"""

import sys
import traceback
from collections.abc import Iterator

import msgspec
import trio

from coterie.agents.events import CleanedUp, EventLog
from coterie.clock import Clock
from coterie.orchestrator.doctor.examination import Mended, examine_machine, examine_session, mend
from coterie.orchestrator.doctor.finding import Finding
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.session import Session
from coterie.orchestrator.starting.janitor import Ended
from coterie.orchestrator.tree.announcing import ROOT


def main(name: str, ended: str) -> int:
    """Mend the session *name*, and tell. Ends with 1 if something was left. Raises `ConfigInvalid` and `OSError`."""
    session, clock = Session.find(name), Clock.from_environment()
    done = clean_up(session, msgspec.json.decode(ended, type=Ended), clock)
    # Opened last: a line that the root has left unfinished is set aside first.
    with EventLog.open(session.directory / EVENT_LOG, ROOT, clock) as log:
        log.tell(done)
    return 1 if done.failures else 0


def clean_up(session: Session, ended: Ended, clock: Clock) -> CleanedUp:
    """Mend what *session* has on record, unless a new root has taken it up."""
    found, trouble = ([], "") if ended.is_taken_over else _examine(session, clock)
    done: list[Mended] = []
    trio.run(mend, found, done.append)
    return CleanedUp(
        killed=ended.killed,
        mended=[f"{one.finding.kind}: {_words(one.finding)}" for one in done if one.failure is None],
        failures=[*_failures(ended, trouble), *(f"{one.finding.where}: {one.failure}" for one in done if one.failure)],
        is_taken_over=ended.is_taken_over,
    )


def _examine(session: Session, clock: Clock) -> tuple[list[Finding], str]:
    """What is wrong, and what stood in the way of looking for more: what was found by then is mended all the same."""
    found: list[Finding] = []
    try:
        found.extend(examine_machine(session))
        # One by one: how the session stands comes first.
        for finding in examine_session(session.id, clock):
            found.append(finding)  # noqa: PERF402 - `extend` keeps nothing if the rest fails
    except Exception as exc:  # noqa: BLE001 - nobody else would ever hear of it
        traceback.print_exc()
        return found, f"{type(exc).__name__}: {exc}"
    return found, ""


def _failures(ended: Ended, trouble: str) -> Iterator[str]:
    for pid in ended.left:
        yield f"process {pid} could not be ended"
    yield from filter(None, (ended.trouble, trouble))


def _words(finding: Finding) -> str:
    return "" if finding.remedy is None else finding.remedy.words


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
