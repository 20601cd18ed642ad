"""Sessions that look as if they ran, and do not: their root was killed before it could say that all had ended."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.agents.errors import ConfigInvalid
from coterie.mailbox.roster import FileRoster
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.overview import is_running, members_of
from coterie.orchestrator.post_office import ROSTER
from coterie.orchestrator.root_record import ROOT_RECORD, forget_dead_root, has_dead_root
from coterie.orchestrator.session import Session


def standing_findings(session: Session) -> Iterator[Finding]:
    """Whether *session*, which does not run, is on record as running. Raises `OSError`."""
    names = _alive_on_record(session)
    if names or has_dead_root(session):
        said = f"{', '.join(names)} would be at work" if names else f"{ROOT_RECORD} names a root"
        yield Finding(
            kind="interrupted_session",
            where=str(session.directory),
            what=f"by its records {said}, but no such process is alive",
            session=session.id,
            remedy=Remedy(words="record that all have ended", apply=partial(end_on_record, session)),
        )


async def end_on_record(session: Session) -> None:
    """Record that nobody of *session* is at work. Raises `NotMended` if somebody is, `MailboxError` and `OSError`."""
    if is_running(session):
        raise NotMended(f"session {session.id} runs again")
    roster = FileRoster(session.directory / ROSTER)
    for name in _alive_on_record(session):
        await roster.set_state(name, "ended")
    try:
        await trio.to_thread.run_sync(forget_dead_root, session)
    except ConfigInvalid as exc:
        raise NotMended(str(exc)) from exc


def _alive_on_record(session: Session) -> list[str]:
    return [member.name for member in members_of(session).values() if member.state != "ended"]
