"""The approvals of one session or of all that run, for who only looks: files that cannot be read hide no other."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.approvals.record import Approval
from coterie.orchestrator.approvals.records import read_records
from coterie.orchestrator.root_record import living_roots
from coterie.orchestrator.session import Session

QUESTION = ("tool", "subject", "details", "reason")
"""What is shown of a call that needs a permission; the rest is between processes."""


@attrs.frozen(kw_only=True)
class Found:
    """An approval, and the session it belongs to."""

    session: Session
    approval: Approval
    doubt: str | None = None
    """Why it does not count as it stands."""

    def row(self) -> dict[str, object]:
        """All of it, as JSON has it; docs/approvals.md says what each member is."""
        approval, claim = self.approval, self.approval.claim
        question = claim.question
        return {
            "session": self.session.id,
            "id": approval.id,
            "what": claim.what,
            "agent": claim.agent,
            "incarnation": claim.incarnation,
            "approver": claim.approver,
            "subject": approval.subject,
            "plan": claim.plan,
            "files": claim.files,
            "paths": claim.paths,
            "question": None if question is None else {name: getattr(question, name) for name in QUESTION},
            "asked_at": approval.asked_at,
            "state": approval.state,
            "by": approval.by,
            "feedback": approval.feedback,
            "decided_at": approval.decided_at,
            "is_past": approval.is_past,
            "doubt": self.doubt,
        }


@attrs.frozen(kw_only=True)
class Unread:
    """A file that stands in the way of an approval, or of all of a session."""

    session: str
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def look(name: str | None) -> Iterator[Found | Unread]:
    """What there is in the session *name*, or in all that run, the oldest of each first. Blocks on the disk.

    Raises `ConfigInvalid` if there is no such session.
    """
    if name is not None:
        yield from _look(Session.find(name))
        return
    for id_ in sorted(living_roots()):
        try:
            session = Session.find(id_)
        except ConfigInvalid as exc:
            yield Unread(session=id_, path=Path(exc.source), reason=exc.reason)
        else:
            yield from _look(session)


def _look(session: Session) -> Iterator[Found | Unread]:
    try:
        records = read_records(session)
    except ConfigInvalid as exc:
        yield Unread(session=session.id, path=Path(exc.source), reason=exc.reason)
        return
    for kept in records:
        if kept.approval is None:
            yield Unread(session=session.id, path=kept.path, reason=kept.doubt or "")
        else:
            yield Found(session=session, approval=kept.approval, doubt=kept.doubt)
