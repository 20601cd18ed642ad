"""Store of approval requests: one signed file for each request, with its state and decision."""

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
"""Maximum length, in characters, of the subject shown in a list."""


@attrs.frozen(kw_only=True)
class ApprovalSubject:
    """Content of an approval request: the plan or the tool call, the agent that asks, and the kind of decider."""

    what: ApprovalKind
    agent: str
    incarnation: int
    """Number of the latest start (incarnation) of the agent in which it made this request."""
    approver: Approver
    """Decider that is asked: "lead", "human" (the user) or "rule"; always "human" for a permission."""
    paths: tuple[str, ...] = ()
    """Patterns of the files that the plan may change, if the approver is "rule"; else not used."""
    plan: str = ""
    files: tuple[str, ...] = ()
    """Files that the plan would change, relative to the agent's working directory."""
    question: PromptUser | None = None
    """Tool call that needs a permission; None for a plan."""

    def is_same(self, other: "ApprovalSubject") -> bool:
        """True if *other* has the same content; only the start (incarnation) of the agent may differ."""
        return attrs.evolve(self, incarnation=0) == attrs.evolve(other, incarnation=0)

    def is_superseded_by(self, other: "ApprovalSubject") -> bool:
        """True if the later request *other* of the same agent makes this request obsolete.

        A new plan replaces each earlier plan. A new request for a call replaces only those of earlier starts of the
        agent.
        """
        is_older = self.incarnation < other.incarnation
        return self.what == other.what and (other.what == "plan" or is_older)


@attrs.frozen(kw_only=True)
class Approval:
    """An approval request of an agent with its state and, once it is decided, the decision."""

    id: str
    """Id such as `plan-3`, unique in the session; also the id of the message that asks the lead about a plan."""
    claim: ApprovalSubject
    asked_at: float
    """Time of the request, in seconds since the epoch (1970)."""
    state: ApprovalState = "open"
    by: str = ""
    """Decider: "lead", "human" or "rule"; name of the requesting agent if withdrawn; empty if open."""
    feedback: str = ""
    """Text of the decider for the agent, such as why a plan is rejected; the reason if withdrawn."""
    decided_at: float | None = None
    is_past: bool = False
    """True if the agent has ended; the decision does not apply to a later agent of the same name."""

    @property
    def is_open(self) -> bool:
        """True if the request is neither decided nor withdrawn."""
        return self.state == "open"

    @property
    def subject(self) -> str:
        """First line of the plan, or tool and subject of the call, cut to `SUBJECT_LENGTH` characters."""
        question = self.claim.question
        text = self.claim.plan if question is None else f"{question.tool} {question.subject}"
        line = " ".join(next(iter(text.strip().splitlines()), "").split())
        return line if len(line) <= SUBJECT_LENGTH else f"{line[:SUBJECT_LENGTH]}..."


KEYS = "keys"
"""Directory of keys in the home of Coterie (`~/.coterie`): one file for each session, readable by its owner only."""
KEY_BYTES = 32
_PURPOSE = b"coterie approvals\n"


@attrs.frozen
class ApprovalKey:
    """Key with which the root (supervisor process) signs approval files, to detect changes by other processes.

    It protects against models and their tools, which may write in the session's directory. A hostile process of the
    same user can read the key.
    """

    _secret: bytes = attrs.field(repr=False)

    @classmethod
    def of_session(cls, id_: str) -> Self:
        """Return the signing key of session *id_*; create it if missing. Raises `ConfigInvalid` and `OSError`."""
        path = _key_path(id_)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, secrets.token_hex(KEY_BYTES).encode() + b"\n", mode=0o600)
        return cls.find(id_)

    @classmethod
    def find(cls, id_: str) -> Self:
        """Return the signing key of session *id_*. Blocks. Raises `ConfigInvalid` if it is missing or unusable."""
        path = _key_path(id_)
        try:
            secret = bytes.fromhex(path.read_text().strip())
            is_private = os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116 - next to the read
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(str(path), f"the signing key cannot be read: {exc}; correct or delete it") from exc
        if len(secret) != KEY_BYTES:
            raise ConfigInvalid(
                str(path),
                f"the file is no signing key of {KEY_BYTES} bytes; delete it, and agents ask for their approvals again",
            )
        if not is_private:
            raise ConfigInvalid(str(path), "the file is a secret key that other users can access; run chmod 600 on it")
        return cls(secret)

    def sign(self, content: bytes) -> str:
        """Return the signature of *content* with this key: a MAC in hexadecimal."""
        return hmac.new(self._secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def verifies(self, content: bytes, mac: str) -> bool:
        """True if *mac* is the signature of *content* with this key."""
        return hmac.compare_digest(self.sign(content).encode(), mac.encode(errors="replace"))


def _key_path(id_: str) -> Path:
    return home_directory() / KEYS / id_


VERSION = 1
APPROVALS = "approvals"
"""Name of the directory of approval files below the session's directory."""


class _File(msgspec.Struct, frozen=True):
    v: int
    approval: msgspec.Raw
    mac: str


@attrs.frozen(kw_only=True)
class StoredApproval:
    """An approval file as it was read: the approval, and the reason if the file is not trusted."""

    path: Path
    approval: Approval | None
    """None if the file is unreadable, has an unknown version, or has a name other than the id."""
    doubt: str | None = None
    """Reason why the file is not trusted; None if its signature is valid."""


@attrs.frozen
class ApprovalStore:
    """Approval files of one session. Its methods block."""

    directory: Path
    key: ApprovalKey

    @classmethod
    def of(cls, session: SessionDirectory, key: ApprovalKey) -> "ApprovalStore":
        """Return the store of *session*, which signs and verifies with *key*."""
        return cls(session.directory / APPROVALS, key)

    def save(self, approval: Approval) -> None:
        """Write *approval*, replacing its earlier file; durable (fsynced) when this returns. Raises `OSError`."""
        self.directory.mkdir(exist_ok=True, mode=0o700)
        content = msgspec.json.encode(approval)
        file = _File(v=VERSION, approval=msgspec.Raw(content), mac=self.key.sign(content))
        replace_file(self.directory / f"{approval.id}.json", msgspec.json.encode(file) + b"\n", mode=0o600)

    def load(self) -> Iterator[StoredApproval]:
        """Yield all files, also untrusted ones: unreadable ones first, then by request time. Raises `OSError`."""
        kept = [self._read(path) for path in self.directory.glob("*.json")]
        yield from sorted(kept, key=lambda each: 0.0 if each.approval is None else each.approval.asked_at)

    def _read(self, path: Path) -> StoredApproval:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
            content = bytes(file.approval)
            approval = msgspec.json.decode(content, type=Approval)
        except (OSError, ValueError, RecursionError) as exc:
            return StoredApproval(path=path, approval=None, doubt=f"it cannot be read: {exc}")
        if file.v != VERSION or path.stem != approval.id:
            return StoredApproval(
                path=path, approval=None, doubt="unknown version, or the id does not match the file name"
            )
        if not self.key.verifies(content, file.mac):
            return StoredApproval(
                path=path, approval=approval, doubt="it was written or changed by another process than the root"
            )
        return StoredApproval(path=path, approval=approval)


def read_approvals(session: SessionDirectory) -> tuple[StoredApproval, ...]:
    """Read all approval files of *session*. Blocks. Raises `ConfigInvalid` if there are files but no usable key."""
    if not (session.directory / APPROVALS).is_dir():
        return ()
    return tuple(ApprovalStore.of(session, ApprovalKey.find(session.id)).load())
