"""Transcript records: one type for each kind of line, and their JSON form."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from coterie.agents.loop.model.catalog import Role
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.files import check_record, frame_record

VERSION = 1
OPEN_MAIL = 50
"""Greatest number of unanswered messages that an agent remembers."""

Trigger = Literal["threshold", "overflow", "manual"]
"""Reason of a compaction: the context was nearly full, the API rejected the prompt as too long, or a user request."""
Way = Literal["notes", "summary", "chunks", "rule"]
"""Source of a summary: session notes, one model call, one model call for each chunk, or a rule without a model."""
Part = Literal["context", "summary", "words", "standing", "skills", "files"]
"""Content of a block that compaction wrote. words: user text; standing: pinned context (team, tasks and mail)."""


class MarksRecord(msgspec.Struct, tag_field="kind", tag="marks"):
    """A change of the marker history, most often because a request was answered."""

    v: int = VERSION
    previous: int | None = None
    shared: int | None = None


class MessageRecord(msgspec.Struct, tag_field="kind", tag="message"):
    """One appended message with all of its blocks."""

    v: int
    role: Role
    blocks: list[msgspec.Raw]
    hash: str
    """Hash of the prefix that ends with this message, in hexadecimal."""
    at: float = 0.0
    """Time of the write in seconds since 1970."""
    more: int = 0
    """Number of following records of the same write; the message counts only if all of them are in the file."""


class EpochMessage(msgspec.Struct):
    """One of the first messages of an epoch."""

    role: Role
    blocks: list[msgspec.Raw]


class Boundary(msgspec.Struct, kw_only=True):
    """The compaction that began an epoch; part of the epoch's record, so that both are written or neither."""

    trigger: Trigger
    by: Way
    turn: int
    """Number of the next model call."""
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that the summary replaced."""
    kept: int
    """Number of messages that stayed, unchanged except for removed thinking."""
    parts: list[Part]
    """Contents of the blocks of the message that compaction wrote, in their order."""
    at_message: int = 0
    """Index of the message that compaction wrote; earlier messages were kept."""
    mail: list[str] = []
    """Ids of mail that entered the conversation at some time and is not acknowledged yet."""
    failures: int = 0
    """Number of consecutive failed summaries before this compaction."""


class EpochRecord(msgspec.Struct, tag_field="kind", tag="epoch"):
    """The beginning of an epoch: it keeps the first segments of the last epoch and adds the listed ones."""

    v: int
    epoch: int
    header: msgspec.Raw
    keep: int
    """Number of first segments taken over from the last epoch."""
    tools: list[msgspec.Raw]
    system: list[msgspec.Raw]
    messages: list[EpochMessage]
    previous: int | None
    shared: int | None
    hash: str
    at: float = 0.0
    boundary: Boundary | None = None
    more: int = 0
    """As in `MessageRecord`."""


class ReplyRecord(msgspec.Struct, tag_field="kind", tag="reply", kw_only=True):
    """Usage and cost of one answered model call. The record of its message, if it has one, comes directly before."""

    v: int = VERSION
    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Cost in dollars as an exact decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False for a reply that was cut off and is requested again."""
    at: float = 0.0
    lives: list[Ttl] = []
    """Times to live at the markers of the request, in the order of `CacheTtls`; empty if all are five minutes."""


class UsedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill whose text the model has read."""

    name: str
    file: str
    """Path of the skill's text, with links resolved, to read it again after a compaction."""
    arguments: str = ""


class StateRecord(msgspec.Struct, tag_field="kind", tag="state", kw_only=True):
    """State of the agent's tools outside the conversation; later records add to earlier ones."""

    v: int = VERSION
    seen: dict[str, str]
    """Files that the model has read, with the version that it read."""
    directory: str | None
    """Working directory of the shell; None if it has not changed."""
    skills: list[UsedSkill] = []
    """Skills that were loaded, the latest at the end."""
    at: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that expects an answer; compaction repeats its text."""

    id: str
    sender: str
    session: str
    kind: str
    task: int | None = None
    """Number of the task, if the message assigns one."""
    text: str
    """Text of the message for the model, truncated if it is long."""


class MailRecord(msgspec.Struct, tag_field="kind", tag="mail", kw_only=True):
    """Delivery of mail from other agents: it is part of the message directly before and is not delivered again."""

    v: int = VERSION
    ids: list[str]
    open: list[UnansweredMessage] = []
    """Delivered messages that expect an answer."""
    answered: list[str] = []
    """Ids of earlier mail that the agent answered with the tool calls of the last turn."""
    at: float = 0.0

    def update(self, open_mail: Mapping[str, UnansweredMessage]) -> dict[str, UnansweredMessage]:
        """Return the unanswered mail after this record, by id, oldest first; the newest OPEN_MAIL messages."""
        left = {id_: mail for id_, mail in open_mail.items() if id_ not in self.answered}
        left |= {mail.id: mail for mail in self.open}
        return dict(list(left.items())[-OPEN_MAIL:])


class UserTextRecord(msgspec.Struct, tag_field="kind", tag="words", kw_only=True):
    """User text, or the agent's task, in the message directly before: compaction keeps this text verbatim.

    Recorded separately because the message may also contain other text, such as mail.
    """

    v: int = VERSION
    texts: list[str]
    at: float = 0.0


class NotesRecord(msgspec.Struct, tag_field="kind", tag="notes", kw_only=True):
    """One update of the session notes."""

    v: int = VERSION
    turn: int
    """The first turn that the notes do not cover."""
    tokens: int
    """Tokens in the context at the time of the update."""
    cost_usd: str
    """Cost of all updates so far in dollars, as an exact decimal number."""
    turns_usd: str
    """Cost of all turns so far, likewise."""
    at: float = 0.0


class RecallRecord(msgspec.Struct, tag_field="kind", tag="recall", kw_only=True):
    """Memories in the message directly before: they are not shown again before the next compaction."""

    v: int = VERSION
    paths: list[str]
    bytes: int
    at: float = 0.0


class ExtractionRecord(msgspec.Struct, tag_field="kind", tag="extraction", kw_only=True):
    """One finished extraction of memories from the conversation, even if it found nothing."""

    v: int = VERSION
    turn: int
    """The first turn that the extraction did not cover."""
    at: float = 0.0


Addition = ReplyRecord | StateRecord | MailRecord | UserTextRecord | NotesRecord | RecallRecord | ExtractionRecord
"""A record that is written together with a message."""
Record = MarksRecord | MessageRecord | EpochRecord | Addition

_record = msgspec.json.Decoder(Record)
_KINDS = frozenset(record.__struct_config__.tag for record in get_args(Record))


class _Kind(msgspec.Struct):
    v: int
    kind: str


def write_line(record: Record) -> bytes:
    """Serialize *record* as one line of a transcript."""
    return frame_record(msgspec.json.encode(record))


def read_line(line: bytes) -> Record | None:
    """Parse a line without its newline; return None for a kind of record that this version does not know.

    Raises `ValueError` for a damaged line and for an unknown version.
    """
    check_record(line)
    kind = msgspec.json.decode(line, type=_Kind)
    if kind.kind not in _KINDS:
        return None
    if kind.v != VERSION:
        raise ValueError(f"version {kind.v} of {kind.kind!r}; this program reads version {VERSION}")
    record: Record = _record.decode(line)
    return record


def store_json(data: bytes) -> msgspec.Raw:
    """Return JSON as a member of a record: unchanged, or as a JSON string if it contains a newline."""
    return msgspec.Raw(msgspec.json.encode(data.decode()) if b"\n" in data else data)


def restore_json(stored: msgspec.Raw) -> bytes:
    """Return the bytes that were passed to `store_json`. Raises `ValueError`."""
    data = bytes(stored)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data
