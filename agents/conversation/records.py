"""The records of a transcript: what each kind holds, and how one becomes a line and is read again."""

import msgspec

from coterie.agents.conversation.segments import Role
from coterie.agents.usage import Usage
from coterie.files import check_record, frame_record

VERSION = 1


class MarksRecord(msgspec.Struct, tag_field="kind", tag="marks"):
    """The memory of markers has changed, most often because a request was answered."""

    v: int = VERSION
    previous: int | None = None
    shared: int | None = None


class MessageRecord(msgspec.Struct, tag_field="kind", tag="message"):
    """One message was appended; all of its blocks, or the record is not there."""

    v: int
    role: Role
    blocks: list[msgspec.Raw]
    hash: str
    """Of the prefix that ends with this message, in hexadecimal."""
    at: float = 0.0
    """When, in seconds since 1970."""


class EpochMessage(msgspec.Struct):
    """A message an epoch begins with."""

    role: Role
    blocks: list[msgspec.Raw]


class EpochRecord(msgspec.Struct, tag_field="kind", tag="epoch"):
    """An epoch began, whole: the first segments of the one before, then what is listed."""

    v: int
    epoch: int
    header: msgspec.Raw
    keep: int
    """How many segments of the epoch before come first."""
    tools: list[msgspec.Raw]
    system: list[msgspec.Raw]
    messages: list[EpochMessage]
    previous: int | None
    shared: int | None
    hash: str
    at: float = 0.0


class ReplyRecord(msgspec.Struct, tag_field="kind", tag="reply", kw_only=True):
    """A model call was answered: what it used. The message it became, if it became one, stands right before."""

    v: int = VERSION
    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Dollars, exact, as a decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False for a reply that was cut off and is asked for again."""
    at: float = 0.0


class StateRecord(msgspec.Struct, tag_field="kind", tag="state", kw_only=True):
    """What the tools of the agent know besides the conversation; later records add to earlier ones."""

    v: int = VERSION
    seen: dict[str, str]
    """Files the model has seen, with the version it saw."""
    directory: str | None
    """Where its shell stands."""
    at: float = 0.0


class MailRecord(msgspec.Struct, tag_field="kind", tag="mail", kw_only=True):
    """Mail of other agents is in the message right before: delivered, and not to be delivered again."""

    v: int = VERSION
    ids: list[str]
    at: float = 0.0


Record = MarksRecord | MessageRecord | EpochRecord | ReplyRecord | StateRecord | MailRecord
Addition = ReplyRecord | StateRecord | MailRecord
"""What is recorded along with messages, and is none."""

_record = msgspec.json.Decoder(Record)
_KINDS = frozenset({"marks", "message", "epoch", "reply", "state", "mail"})


class _Kind(msgspec.Struct):
    v: int
    kind: str


_kind = msgspec.json.Decoder(_Kind)


def write_line(record: Record) -> bytes:
    """The bytes to append to a transcript for *record*."""
    return frame_record(msgspec.json.encode(record))


def read_line(line: bytes) -> Record | None:
    """The record on a line without its newlines; None for a kind this version does not know.

    Raises `ValueError` for a line that is not as it was written.
    """
    check_record(line)
    kind = _kind.decode(line)
    if kind.kind not in _KINDS:
        return None
    if kind.v != VERSION:
        raise ValueError(f"version {kind.v} of {kind.kind!r}; this program reads version {VERSION}")
    record: Record = _record.decode(line)
    return record


def store(data: bytes) -> msgspec.Raw:
    """JSON as a member of a record: itself, or a string of it when it holds a newline of its own."""
    return msgspec.Raw(msgspec.json.encode(data.decode()) if b"\n" in data else data)


def restore(stored: msgspec.Raw) -> bytes:
    """The bytes that were given to `store`. Raises `ValueError`."""
    data = bytes(stored)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data
