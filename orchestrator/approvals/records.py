"""The approvals of a session on disk: a file for each, replaced whole; what the root did not sign proves nothing."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import msgspec

from coterie.files import replace_file
from coterie.orchestrator.approvals.key import ApprovalKey
from coterie.orchestrator.approvals.record import Approval
from coterie.orchestrator.session import Session

VERSION = 1
APPROVALS = "approvals"
"""The directory of the records, in that of a session."""


class _File(msgspec.Struct, frozen=True):
    v: int
    approval: msgspec.Raw
    mac: str


@attrs.frozen(kw_only=True)
class Kept:
    """What one file says."""

    path: Path
    approval: Approval | None
    """None if that cannot be read."""
    doubt: str | None = None
    """Why it does not count as it stands: somebody else has written it."""


@attrs.frozen
class Records:
    """The files of one session. Its methods block."""

    directory: Path
    key: ApprovalKey
    """What the root signs its records with."""

    @classmethod
    def of(cls, session: Session, key: ApprovalKey) -> "Records":
        """Those of *session*."""
        return cls(session.directory / APPROVALS, key)

    def save(self, approval: Approval) -> None:
        """Keep *approval* in place of what was there; it survives a power cut once this returns. Raises `OSError`."""
        self.directory.mkdir(exist_ok=True, mode=0o700)
        content = approval.to_bytes()
        file = _File(v=VERSION, approval=msgspec.Raw(content), mac=self.key.sign(content))
        replace_file(self.directory / f"{approval.id}.json", msgspec.json.encode(file) + b"\n", mode=0o600)

    def load(self) -> Iterator[Kept]:
        """All there are, the oldest first. Raises `OSError`."""
        kept = [self._read(path) for path in self.directory.glob("*.json")]
        yield from sorted(kept, key=lambda each: 0.0 if each.approval is None else each.approval.asked_at)

    def _read(self, path: Path) -> Kept:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
            content = bytes(file.approval)
            approval = Approval.from_bytes(content)
        except (OSError, ValueError, RecursionError) as exc:
            return Kept(path=path, approval=None, doubt=f"it cannot be read: {exc}")
        if file.v != VERSION or path.stem != approval.id:
            return Kept(path=path, approval=None, doubt="it is no record of this version, or another's")
        if not self.key.proves(content, file.mac):
            return Kept(path=path, approval=approval, doubt="it was written or changed by somebody else than the root")
        return Kept(path=path, approval=approval)


def read_records(session: Session) -> tuple[Kept, ...]:
    """What the files of *session* say, for who only looks. Blocks. Raises `ConfigInvalid` for a key that is none."""
    if not (session.directory / APPROVALS).is_dir():
        return ()
    return tuple(Records.of(session, ApprovalKey.find(session.id)).load())
