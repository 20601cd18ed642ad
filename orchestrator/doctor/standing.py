"""Sessions that look as if they ran, and do not: their root was killed before it could say that all had ended."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import CleanedUp
from coterie.mailbox.roster import FileRoster
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.events.sources import EVENT_LOG
from coterie.orchestrator.overview import is_running, members_of, read_backwards
from coterie.orchestrator.post_office import ROSTER
from coterie.orchestrator.root_record import ROOT_RECORD, forget_dead_root, has_dead_root, keep_root_out
from coterie.orchestrator.session import Session


def standing_findings(session: Session) -> Iterator[Finding]:
    """Whether *session*, which does not run, is on record as running. Raises `OSError`."""
    names = _alive_on_record(session)
    if names or has_dead_root(session):
        said = f"{', '.join(names)} would be at work" if names else f"{ROOT_RECORD} names a root"
        why = f"; {_word_of_janitor(session)}" if has_dead_root(session) else ""
        yield Finding(
            kind="interrupted_session",
            where=str(session.directory),
            what=f"by its records {said}, but no such process is alive{why}",
            session=session.id,
            remedy=Remedy(words="record that all have ended", apply=partial(end_on_record, session)),
        )


async def end_on_record(session: Session) -> None:
    """Record that nobody of *session* is at work. Raises `NotMended` if somebody is, `MailboxError` and `OSError`.

    Whoever takes the session up meanwhile waits for it: else the agents of a new root would be among the ended.
    """
    await trio.to_thread.run_sync(_end_on_record_sync, session)


def _end_on_record_sync(session: Session) -> None:
    try:
        with keep_root_out(session):
            if is_running(session):
                raise NotMended(f"session {session.id} runs again")
            if names := _alive_on_record(session):
                FileRoster(session.directory / ROSTER).end_sync(names)
            forget_dead_root(session)
    except ConfigInvalid as exc:
        raise NotMended(str(exc)) from exc


def _alive_on_record(session: Session) -> list[str]:
    return [member.name for member in members_of(session).values() if member.state != "ended"]


def _word_of_janitor(session: Session) -> str:
    """Why whoever had to mend this has not."""
    last = next(read_backwards(session.directory / EVENT_LOG), None)
    if last is None or not isinstance(last.event, CleanedUp):
        return "its janitor was killed as well, or is not done yet"
    return f"its janitor could not mend it: {'; '.join(last.event.failures) or 'it came too late'}"
