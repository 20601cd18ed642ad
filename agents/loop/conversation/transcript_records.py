"""Transcript records: one type per kind of line, and their JSON form."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from coterie.agents.loop.model.catalog import Role
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.files import check_record, frame_record

VERSION = 1
OPEN_MAIL = 50
"""Messages of which it is known that nobody has answered them."""

Trigger = Literal["threshold", "overflow", "manual"]
"""Why a conversation was compacted: it was nearly full, the API found it too long, or somebody asked for it."""
Way = Literal["notes", "summary", "chunks", "rule"]
"""Where the summary came from: session notes, one call of the model, a call for each chunk, or no model at all."""
Part = Literal["context", "summary", "words", "standing", "skills", "files"]
"""What a block that compaction wrote is for; standing: the team, its tasks and its mail."""


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
    more: int = 0
    """Records behind it that were written with it: all of them are there, or it does not count."""


class EpochMessage(msgspec.Struct):
    """A message an epoch begins with."""

    role: Role
    blocks: list[msgspec.Raw]


class Boundary(msgspec.Struct, kw_only=True):
    """What makes an epoch the work of a compaction. It stands in the epoch's record: both are there, or neither is."""

    trigger: Trigger
    by: Way
    turn: int
    """The number of the next model call."""
    tokens_before: int
    tokens_after: int
    left: int
    """Messages that are no longer in the conversation."""
    kept: int
    """Messages that are, as they were but for their thinking."""
    parts: list[Part]
    """What the blocks of the message are that compaction wrote, in their order."""
    at_message: int = 0
    """Where that message stands; what is before it was kept."""
    mail: list[str] = []
    """Ids of mail that is in the conversation, or was, and is not acknowledged yet."""
    failures: int = 0
    """Summaries of the model that had failed in a row by then."""


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
    boundary: Boundary | None = None
    more: int = 0
    """As of a message."""


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
    lives: list[Ttl] = []
    """How long entries at the markers of the request were to live, as in `CacheTtls`; none: five minutes each."""


class UsedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill that the model has been shown."""

    name: str
    file: str
    """Where its text is read again, links followed."""
    arguments: str = ""


class StateRecord(msgspec.Struct, tag_field="kind", tag="state", kw_only=True):
    """What the tools of the agent know besides the conversation; later records add to earlier ones."""

    v: int = VERSION
    seen: dict[str, str]
    """Files the model has seen, with the version it saw."""
    directory: str | None
    """Where its shell stands."""
    skills: list[UsedSkill] = []
    """Skills that were loaded, the last one at the end."""
    at: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that its sender wants an answer to, as far as it is told again after a compaction."""

    id: str
    sender: str
    session: str
    kind: str
    task: int | None = None
    """Of an assignment: the number of the task."""
    text: str
    """As the model reads it, cut if it is long."""


class MailRecord(msgspec.Struct, tag_field="kind", tag="mail", kw_only=True):
    """Mail of other agents is in the message right before: delivered, and not to be delivered again."""

    v: int = VERSION
    ids: list[str]
    open: list[UnansweredMessage] = []
    """What of it wants an answer."""
    answered: list[str] = []
    """Ids of earlier mail that the calls which the message before answers have answered."""
    at: float = 0.0

    def update(self, open_mail: Mapping[str, UnansweredMessage]) -> dict[str, UnansweredMessage]:
        """What is open after it, by id, the oldest first; of very much the newest."""
        left = {id_: mail for id_, mail in open_mail.items() if id_ not in self.answered}
        left |= {mail.id: mail for mail in self.open}
        return dict(list(left.items())[-OPEN_MAIL:])


class UserTextRecord(msgspec.Struct, tag_field="kind", tag="words", kw_only=True):
    """What the human said, and the agent's task, in the message right before: compaction keeps it word for word.

    Said again here because in a message it may stand among words of others, as mail does.
    """

    v: int = VERSION
    texts: list[str]
    at: float = 0.0


class NotesRecord(msgspec.Struct, tag_field="kind", tag="notes", kw_only=True):
    """The session notes were brought up to date."""

    v: int = VERSION
    turn: int
    """The first turn that they do not know of."""
    tokens: int
    """How full the context was."""
    cost_usd: str
    """Of all updates so far, exact, as a decimal number."""
    turns_usd: str
    """Of all turns so far."""
    at: float = 0.0


class RecallRecord(msgspec.Struct, tag_field="kind", tag="recall", kw_only=True):
    """Memories are in the message right before: they are not shown again before a compaction."""

    v: int = VERSION
    paths: list[str]
    bytes: int
    at: float = 0.0


class ExtractionRecord(msgspec.Struct, tag_field="kind", tag="extraction", kw_only=True):
    """What is worth keeping was taken from the conversation, or there was nothing."""

    v: int = VERSION
    turn: int
    """The first turn that it does not know of."""
    at: float = 0.0


Addition = ReplyRecord | StateRecord | MailRecord | UserTextRecord | NotesRecord | RecallRecord | ExtractionRecord
Record = MarksRecord | MessageRecord | EpochRecord | Addition
"""What is recorded along with messages, and is none."""

_record = msgspec.json.Decoder(Record)
_KINDS = frozenset({"marks", "message", "epoch", "reply", "state", "mail", "words", "notes", "recall", "extraction"})


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


def store_json(data: bytes) -> msgspec.Raw:
    """JSON as a member of a record: itself, or a string of it when it holds a newline of its own."""
    return msgspec.Raw(msgspec.json.encode(data.decode()) if b"\n" in data else data)


def restore_json(stored: msgspec.Raw) -> bytes:
    """The bytes that were given to `store_json`. Raises `ValueError`."""
    data = bytes(stored)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data
