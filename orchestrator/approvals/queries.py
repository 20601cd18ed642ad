"""Read-only queries over the approvals of one session or of all running sessions."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.errors import ConfigInvalid
from coterie.orchestrator.approvals.store import Approval, read_approvals
from coterie.orchestrator.session.root_lock import find_living_roots
from coterie.session_directory import SessionDirectory

QUESTION = ("tool", "subject", "details", "reason")
"""Fields of a permission question that are shown to the user."""


@attrs.frozen(kw_only=True)
class ListedApproval:
    """An approval, and the session it belongs to."""

    session: SessionDirectory
    approval: Approval
    doubt: str | None = None
    """Reason why the stored file is not trusted; None if it is."""

    def row(self) -> dict[str, object]:
        """Return the approval as a JSON object; docs/approvals.md describes its members."""
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
class UnreadableApproval:
    """A file that cannot be read: one approval, or the key of a session."""

    session: str
    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def find_approvals(name: str | None) -> Iterator[ListedApproval | UnreadableApproval]:
    """Yield the approvals of session *name*, or of all running sessions, oldest first. Blocks on the disk.

    Raises `ConfigInvalid` if session *name* does not exist.
    """
    if name is not None:
        yield from _list_session(SessionDirectory.find(name))
        return
    for id_ in sorted(find_living_roots()):
        try:
            session = SessionDirectory.find(id_)
        except ConfigInvalid as exc:
            yield UnreadableApproval(session=id_, path=Path(exc.source), reason=exc.reason)
        else:
            yield from _list_session(session)


def _list_session(session: SessionDirectory) -> Iterator[ListedApproval | UnreadableApproval]:
    try:
        records = read_approvals(session)
    except ConfigInvalid as exc:
        yield UnreadableApproval(session=session.id, path=Path(exc.source), reason=exc.reason)
        return
    for kept in records:
        if kept.approval is None:
            yield UnreadableApproval(session=session.id, path=kept.path, reason=kept.doubt or "")
        else:
            yield ListedApproval(session=session, approval=kept.approval, doubt=kept.doubt)
