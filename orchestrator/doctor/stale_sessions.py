"""Check for sessions that are recorded as running and are not."""

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
    """Whether *session*, which does not run, is on record as running. Raises `OSError`."""
    names = _alive_on_record(session)
    if names or has_dead_root(session):
        said = f"{', '.join(names)} would be at work" if names else f"{ROOT_RECORD} names a root"
        why = f"; {_cleanup_failure(session)}" if has_dead_root(session) else ""
        yield DoctorFinding(
            kind="interrupted_session",
            where=str(session.directory),
            what=f"by its records {said}, but no such process is alive{why}",
            session=session.id,
            remedy=RepairAction(description="record that all have ended", apply=partial(mark_ended, session)),
        )


async def mark_ended(session: SessionDirectory) -> None:
    """Record that nobody of *session* is at work. Raises `RepairFailed` if somebody is, `MailboxError` and `OSError`.

    Whoever takes the session up meanwhile waits for it: else the agents of a new root would be among the ended.
    """
    await trio.to_thread.run_sync(_mark_ended_sync, session)


def _mark_ended_sync(session: SessionDirectory) -> None:
    try:
        with hold_root_lock(session):
            if is_running(session):
                raise RepairFailed(f"session {session.id} runs again")
            if names := _alive_on_record(session):
                FileRoster(session.directory / ROSTER_FILE).mark_ended_sync(names)
            clear_stale_root(session)
    except ConfigInvalid as exc:
        raise RepairFailed(str(exc)) from exc


def _alive_on_record(session: SessionDirectory) -> list[str]:
    return [member.name for member in read_members(session).values() if member.state != "ended"]


def _cleanup_failure(session: SessionDirectory) -> str:
    """Why whoever had to mend this has not."""
    last = next(read_log_backwards(session.directory / EVENT_LOG), None)
    if last is None or not isinstance(last.event, CleanedUp):
        return "its janitor was killed as well, or is not done yet"
    return f"its janitor could not mend it: {'; '.join(last.event.failures) or 'it came too late'}"
