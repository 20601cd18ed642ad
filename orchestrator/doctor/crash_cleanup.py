"""Repair of a session after its root was killed; the cleanup daemon runs it.

`python -P -m coterie.orchestrator.doctor.crash_cleanup SESSION ENDED` is what the janitor becomes once no process is
left. ENDED is what it has done about these, its `KilledProcesses`, as JSON.
"""

import sys
import traceback
from collections.abc import Iterator

import msgspec
import trio

from coterie.agents.events.event_log import EventLog
from coterie.agents.events.root_events import CleanedUp
from coterie.clock import Clock
from coterie.orchestrator.doctor.checks import RepairResult, check_machine, check_session, repair
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.orchestrator.processes.cleanup_daemon import KilledProcesses
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME
from coterie.session_directory import EVENT_LOG, SessionDirectory


def main(name: str, ended: str) -> int:
    """Mend the session *name*, and tell. Ends with 1 if something was left. Raises `ConfigInvalid` and `OSError`."""
    session, clock = SessionDirectory.find(name), Clock.from_environment()
    done = repair_session(session, msgspec.json.decode(ended, type=KilledProcesses), clock)
    # Opened last: a line that the root has left unfinished is set aside first.
    with EventLog.open(session.directory / EVENT_LOG, ROOT_NAME, clock) as log:
        log.emit(done)
    return 1 if done.failures else 0


def repair_session(session: SessionDirectory, ended: KilledProcesses, clock: Clock) -> CleanedUp:
    """Mend what *session* has on record, unless a new root has taken it up."""
    found, trouble = ([], "") if ended.is_taken_over else _examine(session, clock)
    done: list[RepairResult] = []
    trio.run(repair, found, done.append)
    return CleanedUp(
        killed=ended.killed,
        mended=[f"{one.finding.kind}: {_describe(one.finding)}" for one in done if one.failure is None],
        failures=[*_failures(ended, trouble), *(f"{one.finding.where}: {one.failure}" for one in done if one.failure)],
        is_taken_over=ended.is_taken_over,
    )


def _examine(session: SessionDirectory, clock: Clock) -> tuple[list[DoctorFinding], str]:
    """What is wrong, and what stood in the way of looking for more: what was found by then is mended all the same."""
    found: list[DoctorFinding] = []
    try:
        found.extend(check_machine(session))
        # One by one: how the session stands comes first.
        for finding in check_session(session.id, clock):
            found.append(finding)  # noqa: PERF402 - `extend` keeps nothing if the rest fails
    except Exception as exc:  # noqa: BLE001 - nobody else would ever hear of it
        traceback.print_exc()
        return found, f"{type(exc).__name__}: {exc}"
    return found, ""


def _failures(ended: KilledProcesses, trouble: str) -> Iterator[str]:
    for pid in ended.left:
        yield f"process {pid} could not be ended"
    yield from filter(None, (ended.trouble, trouble))


def _describe(finding: DoctorFinding) -> str:
    return "" if finding.remedy is None else finding.remedy.description


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
