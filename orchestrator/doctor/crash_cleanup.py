"""Program that repairs a session after its root (supervisor process) was killed; started by the cleanup daemon.

The cleanup daemon executes `python -P -m coterie.orchestrator.doctor.crash_cleanup SESSION ENDED` after it has killed
all processes of the session. ENDED is the `KilledProcesses` of the daemon as JSON.
"""

import sys
import traceback

import msgspec
import trio

from coterie.agents.events.event_log import EventLog
from coterie.agents.events.root_events import CleanedUp
from coterie.clock import Clock
from coterie.orchestrator.doctor.checks import check_machine, check_session, repair
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.orchestrator.processes.cleanup_daemon import KilledProcesses
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME
from coterie.session_directory import EVENT_LOG, SessionDirectory


def main(name: str, ended: str) -> int:
    """Repair the session *name* and log a `CleanedUp` event; return 1 if something could not be repaired, else 0.

    *ended* is the `KilledProcesses` of the cleanup daemon as JSON. Raises `ConfigInvalid` and `OSError`.
    """
    session, clock = SessionDirectory.find(name), Clock.from_environment()
    done = repair_session(session, msgspec.json.decode(ended, type=KilledProcesses), clock)
    # Opened last, because the repair moves an incomplete line of the root out of the log.
    with EventLog.open(session.directory / EVENT_LOG, ROOT_NAME, clock) as log:
        log.emit(done)
    return 1 if done.failures else 0


def repair_session(session: SessionDirectory, ended: KilledProcesses, clock: Clock) -> CleanedUp:
    """Find and repair the problems of *session*. Return an event with the repairs, and *ended*, the killed processes.

    Nothing is repaired if a new root (supervisor process) has resumed the session in the meantime.
    """
    found, error = ([], "") if ended.is_taken_over else _examine(session, clock)
    results = trio.run(repair, found)
    return CleanedUp(
        killed=ended.killed,
        mended=[
            f"{finding.kind}: {finding.remedy.description}"
            for finding, failure in results.items()
            if failure is None and finding.remedy is not None
        ],
        failures=[
            *(f"process {pid} could not be killed" for pid in ended.left),
            *filter(None, (ended.trouble, error)),
            *(f"{finding.where}: {failure}" for finding, failure in results.items() if failure),
        ],
        is_taken_over=ended.is_taken_over,
    )


def _examine(session: SessionDirectory, clock: Clock) -> tuple[list[DoctorFinding], str]:
    """Return the problems of *session*, and the text of an error that stopped the search, empty if there was none."""
    found: list[DoctorFinding] = []
    try:
        found.extend(check_machine(session))
        for finding in check_session(session.id, clock):
            found.append(finding)  # noqa: PERF402 - `extend` keeps nothing if the rest fails
    except Exception as exc:  # noqa: BLE001 - outermost frame: the error becomes part of the event
        traceback.print_exc()
        return found, f"{type(exc).__name__}: {exc}"
    return found, ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
