"""Records of a transcript (stored conversation of an agent): one class for each kind of line, and their JSON form."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from coterie.agents.loop.model.catalog import Role
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.files import check_record, frame_record

VERSION = 1
OPEN_MAIL = 50
"""Maximum number of unanswered messages that an agent remembers; the oldest ones are dropped."""

Trigger = Literal["threshold", "overflow", "manual"]
"""Reason of a compaction. threshold: nearly full context; overflow: too long for the API; manual: user request."""
Way = Literal["notes", "summary", "chunks", "rule"]
"""Source of a compaction's summary. notes: session notes; summary, chunks: one, several model calls; rule: no call."""
Part = Literal["context", "summary", "words", "standing", "skills", "files"]
"""Content of a block that a compaction wrote. context: instructions; words: user texts; standing: team, tasks, mail."""


class MarksRecord(msgspec.Struct, tag_field="kind", tag="marks"):
    """Record of the positions of earlier cache markers (`MarkerHistory`), mostly written after an answered request."""

    v: int = VERSION
    previous: int | None = None
    shared: int | None = None


class MessageRecord(msgspec.Struct, tag_field="kind", tag="message"):
    """Record of one message that was appended to the conversation, with all its content blocks."""

    v: int
    role: Role
    blocks: list[msgspec.Raw]
    hash: str
    """Hash of the conversation up to the end of this message, in hexadecimal; checked when the file is loaded."""
    at: float = 0.0
    """Time at which the record was written, in seconds since 1970."""
    more: int = 0
    """Number of further records in the same write; if a crash has cut some of them off, the message is ignored too."""


class EpochMessage(msgspec.Struct):
    """One message inside an `EpochRecord`: one of the messages with which the new or rewritten conversation begins."""

    role: Role
    blocks: list[msgspec.Raw]


class Boundary(msgspec.Struct, kw_only=True):
    """Description of a compaction (summary in place of older messages); part of the epoch record that it caused."""

    trigger: Trigger
    by: Way
    turn: int
    """Number of the agent's first turn (model call) after the compaction."""
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that were removed and replaced by the summary."""
    kept: int
    """Number of messages that stayed in the conversation, unchanged except for removed thinking blocks."""
    parts: list[Part]
    """Kind of content of each block in the message that the compaction wrote, in order."""
    at_message: int = 0
    """Index, from 0, of the message that the compaction wrote; the messages before it were kept."""
    mail: list[str] = []
    """Ids of messages that entered the conversation, but are not acknowledged (marked as read) in the mailbox yet."""
    failures: int = 0
    """Number of attempts to create a summary that failed in a row directly before this compaction."""


class EpochRecord(msgspec.Struct, tag_field="kind", tag="epoch"):
    """Record of an epoch (new or rewritten conversation): number of first blocks kept, and the blocks after them."""

    v: int
    epoch: int
    header: msgspec.Raw
    keep: int
    """Number of blocks at the start of the old conversation that the new one takes over; 0 for a new conversation."""
    tools: list[msgspec.Raw]
    system: list[msgspec.Raw]
    messages: list[EpochMessage]
    previous: int | None
    shared: int | None
    hash: str
    at: float = 0.0
    boundary: Boundary | None = None
    more: int = 0
    """Number of further records in the same write; if a crash has cut some of them off, the epoch is ignored too."""


class ReplyRecord(msgspec.Struct, tag_field="kind", tag="reply", kw_only=True):
    """Record of one model reply: usage, cost and times. Its content, if kept, is in the `MessageRecord` before."""

    v: int = VERSION
    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Cost of the call in dollars, as an exact decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False for a reply that was cut off and requested again, so that it is not in the conversation; else True."""
    at: float = 0.0
    lives: list[Ttl] = []
    """Times to live at the four cache markers of the request, in their order; empty if all are five minutes."""


class UsedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill (instructions in a file, loaded on demand) whose text is or was in the agent's conversation."""

    name: str
    file: str
    """Path of the file with the skill's text, with symbolic links resolved; it is read again after a compaction."""
    arguments: str = ""


class StateRecord(msgspec.Struct, tag_field="kind", tag="state", kw_only=True):
    """Record of changed tool state outside the messages: files read, directory, skills. It adds to earlier records."""

    v: int = VERSION
    seen: dict[str, str]
    """Path -> version (hash of the content) of the files that the model has read since the last record."""
    directory: str | None
    """New working directory of the agent's shell, relative to its project directory; None if it has not changed."""
    skills: list[UsedSkill] = []
    """Skills that were loaded since the last record, in the order of loading."""
    at: float = 0.0


class UnansweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A received message that the agent should answer; a compaction repeats its text, so that it is not forgotten."""

    id: str
    sender: str
    session: str
    kind: str
    task: int | None = None
    """Number of the task (entry of the session's task list) that the message assigns; None for other messages."""
    text: str
    """Text of the message as the model sees it, truncated if it is long."""


class MailRecord(msgspec.Struct, tag_field="kind", tag="mail", kw_only=True):
    """Record of received mail (in the message recorded before), not to be delivered again, and of mail now answered."""

    v: int = VERSION
    ids: list[str]
    open: list[UnansweredMessage] = []
    """Those of the delivered messages that the agent should answer."""
    answered: list[str] = []
    """Ids of earlier messages that the agent answered by tool calls of the last turn."""
    at: float = 0.0

    def update(self, open_mail: Mapping[str, UnansweredMessage]) -> dict[str, UnansweredMessage]:
        """Return the unanswered messages *open_mail* without those in `answered`, plus `open`; only the newest 50."""
        left = {id_: mail for id_, mail in open_mail.items() if id_ not in self.answered}
        left |= {mail.id: mail for mail in self.open}
        return dict(list(left.items())[-OPEN_MAIL:])


class UserTextRecord(msgspec.Struct, tag_field="kind", tag="words", kw_only=True):
    """Record of the user's texts, or the agent's task, in the message recorded before; a compaction repeats them.

    They are recorded separately, because the message may also contain other text, such as mail.
    """

    v: int = VERSION
    texts: list[str]
    at: float = 0.0


class NotesRecord(msgspec.Struct, tag_field="kind", tag="notes", kw_only=True):
    """Record of one update of the session notes (file with a summary of the agent's work)."""

    v: int = VERSION
    turn: int
    """Number of the first turn that the notes do not cover yet."""
    tokens: int
    """Number of tokens in the agent's context at the time of the update."""
    cost_usd: str
    """Cost of all updates of the notes so far in dollars, as an exact decimal number."""
    turns_usd: str
    """Cost of all turns of the agent so far in dollars, as an exact decimal number."""
    at: float = 0.0


class RecallRecord(msgspec.Struct, tag_field="kind", tag="recall", kw_only=True):
    """Record of the memory files in the message recorded before; until a compaction, they are not shown again."""

    v: int = VERSION
    paths: list[str]
    bytes: int
    at: float = 0.0


class ExtractionRecord(msgspec.Struct, tag_field="kind", tag="extraction", kw_only=True):
    """Record of a finished extraction (saving of memories from the conversation), even if it saved nothing."""

    v: int = VERSION
    turn: int
    """Number of the first turn that the extraction did not cover; the next extraction begins with it."""
    at: float = 0.0


Addition = ReplyRecord | StateRecord | MailRecord | UserTextRecord | NotesRecord | RecallRecord | ExtractionRecord
"""Record with additional data, such as usage or mail, that is usually written in one step with a message."""
Record = MarksRecord | MessageRecord | EpochRecord | Addition

_record = msgspec.json.Decoder(Record)
_KINDS = frozenset(record.__struct_config__.tag for record in get_args(Record))


class _Kind(msgspec.Struct):
    v: int
    kind: str


def write_line(record: Record) -> bytes:
    """Return *record* as the bytes to append to a transcript: one line of JSON with a checksum."""
    return frame_record(msgspec.json.encode(record))


def read_line(line: bytes) -> Record | None:
    """Parse one transcript line, given without its newline; return None for a record of an unknown kind.

    Raises `ValueError` for a damaged line and for an unknown format version.
    """
    check_record(line)
    kind = msgspec.json.decode(line, type=_Kind)
    if kind.kind not in _KINDS:
        return None
    if kind.v != VERSION:
        raise ValueError(f"the {kind.kind!r} record has format version {kind.v}, not {VERSION}; update Coterie")
    record: Record = _record.decode(line)
    return record


def store_json(data: bytes) -> msgspec.Raw:
    """Return the JSON *data* as a value for a one-line record: unchanged, or if it has a newline, as a JSON string."""
    return msgspec.Raw(msgspec.json.encode(data.decode()) if b"\n" in data else data)


def restore_json(stored: msgspec.Raw) -> bytes:
    """Return the JSON bytes that `store_json` received when it made *stored*. Raises `ValueError` for invalid input."""
    data = bytes(stored)
    return msgspec.json.decode(data, type=str).encode() if data.startswith(b'"') else data
