"""Records of approvals that the root has not written as they stand, or that nobody can read."""

from collections.abc import Iterator

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.approvals.records import read_records
from coterie.orchestrator.doctor.finding import Finding
from coterie.orchestrator.session import Session

ADVICE = "it grants nothing, and the root writes it anew once its agent asks again; find out who has written it"


def approval_findings(session: Session) -> Iterator[Finding]:
    """What stands in the files of approvals of *session*, and does not count. Blocks on the disk; raises `OSError`."""
    try:
        records = read_records(session)
    except ConfigInvalid as exc:
        advice = "without it nothing that was approved counts after a restart: agents have to ask again"
        yield _damaged(session, exc.source, exc.reason, advice)
        return
    for kept in records:
        if kept.doubt is not None:
            yield _damaged(session, str(kept.path), kept.doubt, ADVICE)


def _damaged(session: Session, where: str, what: str, advice: str) -> Finding:
    return Finding(kind="damaged_record", where=where, what=what, session=session.id, advice=advice)
