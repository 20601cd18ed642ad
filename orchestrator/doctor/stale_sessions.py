"""Check for sessions that are recorded as running although they are not."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.agents.events.event_reader import read_log_backwards
from coterie.agents.events.root_events import CleanedUp
from coterie.errors import ConfigInvalid
from coterie.mailbox.roster import FileRoster
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.session.overview import is_running, read_members
from coterie.orchestrator.session.root_lock import ROOT_RECORD, clear_stale_root, has_dead_root, hold_root_lock
from coterie.session_directory import EVENT_LOG, ROSTER_FILE, SessionDirectory


def stale_session_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """Find records of *session* that say it runs; call it only if it does not run. Raises `OSError`."""
    names = _recorded_as_alive(session)
    if names or has_dead_root(session):
        recorded = f"agents are running ({', '.join(names)})" if names else f"the root in {ROOT_RECORD} is running"
        cause = f"; {_cleanup_failure(session)}" if has_dead_root(session) else ""
        yield DoctorFinding(
            kind="interrupted_session",
            where=str(session.directory),
            what=f"its records say that {recorded}, but no such process exists{cause}",
            session=session.id,
            remedy=RepairAction(description="record that all agents have ended", apply=partial(mark_ended, session)),
        )


async def mark_ended(session: SessionDirectory) -> None:
    """Record that all agents of *session* have ended.

    A client that resumes the session waits until this is done; otherwise agents of the new root would be recorded as
    ended. Raises `RepairFailed` if the session runs, `MailboxError` and `OSError`.
    """
    await trio.to_thread.run_sync(_mark_ended_sync, session)


def _mark_ended_sync(session: SessionDirectory) -> None:
    try:
        with hold_root_lock(session):
            if is_running(session):
                raise RepairFailed(f"session {session.id} is running again")
            if names := _recorded_as_alive(session):
                FileRoster(session.directory / ROSTER_FILE).mark_ended_sync(names)
            clear_stale_root(session)
    except ConfigInvalid as exc:
        raise RepairFailed(str(exc)) from exc


def _recorded_as_alive(session: SessionDirectory) -> list[str]:
    return [member.name for member in read_members(session).values() if member.state != "ended"]


def _cleanup_failure(session: SessionDirectory) -> str:
    """Explain why the cleanup daemon has not repaired *session*."""
    last = next(read_log_backwards(session.directory / EVENT_LOG), None)
    if last is None or not isinstance(last.event, CleanedUp):
        return "its cleanup daemon was killed too, or has not finished"
    return f"its cleanup daemon could not repair it: {'; '.join(last.event.failures) or 'it ran too late'}"
