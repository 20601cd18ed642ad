"""Approvals on disk: one signed file for each."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

import attrs
import msgspec

from coterie.agents.permissions.plan_approval import Approver
from coterie.agents.root_link.approval_messages import PromptUser
from coterie.errors import ConfigInvalid
from coterie.files import replace_file
from coterie.paths import home_directory
from coterie.session_directory import SessionDirectory

ApprovalKind = Literal["plan", "permission"]
ClosedState = Literal["approved", "rejected", "withdrawn"]
ApprovalState = Literal["open"] | ClosedState
SUBJECT_LENGTH = 200
"""Characters of a plan's first line, or of a call, that a list shows."""


@attrs.frozen(kw_only=True)
class ApprovalSubject:
    """What an agent wants a yes to."""

    what: ApprovalKind
    agent: str
    incarnation: int
    """Which start of the agent wants it; of several, the last."""
    approver: Approver
    """Who decides, by the policy."""
    paths: tuple[str, ...] = ()
    """Of a rule: patterns of the only files that may be changed."""
    plan: str = ""
    files: tuple[str, ...] = ()
    """What the plan would change, relative to where the agent works."""
    question: PromptUser | None = None
    """The call that needs a permission."""

    def is_same(self, other: "ApprovalSubject") -> bool:
        """Whether it asks for the same, be it by another start of the agent."""
        return attrs.evolve(self, incarnation=0) == attrs.evolve(other, incarnation=0)

    def is_superseded_by(self, other: "ApprovalSubject") -> bool:
        """Whether nobody can want this any more when the same agent wants *other*: it has one plan at a time."""
        is_older = self.incarnation < other.incarnation
        return self.what == other.what and (other.what == "plan" or is_older)


@attrs.frozen(kw_only=True)
class Approval:
    """A claim, and what was decided over it."""

    id: str
    """Unique in the session; also the id of the message with which the lead is asked."""
    claim: ApprovalSubject
    asked_at: float
    """Seconds since 1970."""
    state: ApprovalState = "open"
    by: str = ""
    """Who decided: lead, human or rule; of one that was withdrawn, the agent itself."""
    feedback: str = ""
    """What the agent is told besides; of one that was withdrawn, why nobody wants it any more."""
    decided_at: float | None = None
    is_past: bool = False
    """Whether the agent has ended: another one of that name asks for itself."""

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided, and the agent may still want it."""
        return self.state == "open"

    @property
    def subject(self) -> str:
        """The plan's first line, or the call; on one line."""
        question = self.claim.question
        text = self.claim.plan if question is None else f"{question.tool} {question.subject}"
        line = " ".join(next(iter(text.strip().splitlines()), "").split())
        return line if len(line) <= SUBJECT_LENGTH else f"{line[:SUBJECT_LENGTH]}..."

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Approval":
        """What `to_bytes` wrote. Raises `ValueError`."""
        return msgspec.json.decode(data, type=cls)


KEYS = "keys"
"""In the user's own directory: a file for each session, that only its owner can read."""
KEY_BYTES = 32
_PURPOSE = b"coterie approvals\n"


@attrs.frozen
class ApprovalKey:
    """Tells what the root has written from what others have.

    It keeps out the model and its tools, as far as these keep to the session's directory. A hostile process of the same
    user can read it.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def of_session(cls, id_: str) -> Self:
        """That of the session, made if there is none. Blocks. Raises `ConfigInvalid` as `find` does, and `OSError`."""
        path = _key_path(id_)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, secrets.token_hex(KEY_BYTES).encode() + b"\n", mode=0o600)
        return cls.find(id_)

    @classmethod
    def find(cls, id_: str) -> Self:
        """That of the session. Blocks. Raises `ConfigInvalid` if there is none that can be used."""
        path = _key_path(id_)
        try:
            secret = bytes.fromhex(path.read_text().strip())
            is_private = os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116 - beside the read, as one question
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(str(path), f"cannot be read: {exc}") from exc
        if len(secret) != KEY_BYTES:
            raise ConfigInvalid(str(path), f"holds no key of {KEY_BYTES} bytes; without the file a new one is made")
        if not is_private:
            raise ConfigInvalid(str(path), "can be read by others; chmod 600 lets it be used")
        return cls(secret)

    def sign(self, content: bytes) -> str:
        """The MAC of *content*, in hex."""
        return hmac.new(self._secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def verifies(self, content: bytes, mac: str) -> bool:
        """Whether *mac* was made of *content* with this key."""
        return hmac.compare_digest(self.sign(content).encode(), mac.encode(errors="replace"))


def _key_path(id_: str) -> Path:
    return home_directory() / KEYS / id_


VERSION = 1
APPROVALS = "approvals"
"""The directory of the records, in that of a session."""


class _File(msgspec.Struct, frozen=True):
    v: int
    approval: msgspec.Raw
    mac: str


@attrs.frozen(kw_only=True)
class StoredApproval:
    """What one file says."""

    path: Path
    approval: Approval | None
    """None if that cannot be read."""
    doubt: str | None = None
    """Why it does not count as it stands: somebody else has written it."""


@attrs.frozen
class ApprovalStore:
    """The files of one session. Its methods block."""

    directory: Path
    key: ApprovalKey
    """What the root signs its records with."""

    @classmethod
    def of(cls, session: SessionDirectory, key: ApprovalKey) -> "ApprovalStore":
        """Those of *session*."""
        return cls(session.directory / APPROVALS, key)

    def save(self, approval: Approval) -> None:
        """Keep *approval* in place of what was there; it survives a power cut once this returns. Raises `OSError`."""
        self.directory.mkdir(exist_ok=True, mode=0o700)
        content = approval.to_bytes()
        file = _File(v=VERSION, approval=msgspec.Raw(content), mac=self.key.sign(content))
        replace_file(self.directory / f"{approval.id}.json", msgspec.json.encode(file) + b"\n", mode=0o600)

    def load(self) -> Iterator[StoredApproval]:
        """All there are, the oldest first. Raises `OSError`."""
        kept = [self._read(path) for path in self.directory.glob("*.json")]
        yield from sorted(kept, key=lambda each: 0.0 if each.approval is None else each.approval.asked_at)

    def _read(self, path: Path) -> StoredApproval:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
            content = bytes(file.approval)
            approval = Approval.from_bytes(content)
        except (OSError, ValueError, RecursionError) as exc:
            return StoredApproval(path=path, approval=None, doubt=f"it cannot be read: {exc}")
        if file.v != VERSION or path.stem != approval.id:
            return StoredApproval(path=path, approval=None, doubt="it is no record of this version, or another's")
        if not self.key.verifies(content, file.mac):
            return StoredApproval(
                path=path, approval=approval, doubt="it was written or changed by somebody else than the root"
            )
        return StoredApproval(path=path, approval=approval)


def read_approvals(session: SessionDirectory) -> tuple[StoredApproval, ...]:
    """What the files of *session* say, for who only looks. Blocks. Raises `ConfigInvalid` for a key that is none."""
    if not (session.directory / APPROVALS).is_dir():
        return ()
    return tuple(ApprovalStore.of(session, ApprovalKey.find(session.id)).load())
