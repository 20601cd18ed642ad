"""Fork points: everything that a fork (agent that starts with its parent's conversation) inherits, as bytes.

AgentError
├── PrefixDiffers            a fork does not begin with its parent's bytes: a bug, or damage in transit
└── ToolFailed
    └── ForkRefused          no fork is possible: the model that asked for one gets the reason
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.context_window import WindowMeter
from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES, CacheTtls, MarkerHistory
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.conversation.transcript_records import StateRecord, UsedSkill
from coterie.agents.loop.model.catalog import Role, Section
from coterie.agents.loop.model.usage import Usage
from coterie.errors import AgentError


@attrs.define(eq=False)
class PrefixDiffers(AgentError):
    """Error: the conversation of a fork does not begin with the bytes of its parent's conversation."""

    index: int | None
    """Index of the first segment (block) that differs; None if the key headers (model and parameters) differ."""
    detail: str
    """Type and size of the blocks that differ, or the key header (model and request parameters) of the fork."""

    def __str__(self) -> str:
        where = "the key header" if self.index is None else f"segment {self.index}"
        return f"bug: a fork does not begin with its parent's conversation: {where} differs, {self.detail}"


class ForkRefused(ToolFailed):
    """Error: a model requested a fork, but its agent is a fork itself or has no reply yet; the model gets the text."""


_SIZE = struct.Struct("<Q")


@attrs.frozen(kw_only=True, eq=False)
class ParentState:
    """State of a parent agent after its last reply that forks inherit, without the bytes of its conversation."""

    parent: str
    """Name of the parent agent."""
    epoch: int = 0
    previous: int | None = None
    """Index of the segment (block) at which the parent's last cache entry ends; None if there is no such entry."""
    tokens: int = 0
    """Estimated tokens of the parent's conversation up to its last reply."""
    expected_read: int | None = None
    """Tokens that the parent had in the prompt cache, which a fork should read from there; None if unknown."""
    used_at: float | None = None
    """Time at which the parent last used these cache entries, in seconds since 1970; None if unknown."""
    ttl: CacheTtls = FIVE_MINUTES
    """Times to live of the cache entries that the parent's requests have written."""
    seen: Mapping[str, str] = attrs.field(factory=dict)
    """Files that the parent's model has read: path -> hash of the content in hexadecimal."""
    directory: str | None = None
    """Current directory of the parent's shell, relative to the parent's project directory; None if unknown."""
    words: Sequence[str] = ()
    """The parent's task and all texts that the user wrote to the parent, oldest first."""
    skills: Sequence[UsedSkill] = ()
    """Skills (instructions loaded on use) that the parent has loaded."""


@attrs.frozen(kw_only=True, eq=False)
class ForkPoint(ParentState):
    """Conversation and state of a parent after its last reply, for any number of forks in any process.

    Tool results that the parent has shortened or cleared to save context are contained in this form, so that forks send
    the same bytes as the parent and need not repeat these changes.
    """

    prefix: Prefix
    """All segments (tools, system prompt, content blocks) up to and including the parent's last reply."""

    @property
    def workspace_state(self) -> StateRecord:
        """State of the parent's tools for a fork's workspace: files read, working directory, loaded skills."""
        return StateRecord(seen=dict(self.seen), directory=self.directory, skills=list(self.skills))

    @property
    def hash(self) -> bytes:
        """Hash of all of `prefix` (the parent's conversation) and its key header (model and parameters)."""
        return self.prefix.hash_at(len(self.prefix))

    def conversation(self) -> Conversation:
        """Return a conversation for a fork: the parent's segments, epoch (number of rewrites) and last cache marker."""
        return Conversation(self.prefix, self.epoch, MarkerHistory(previous=self.previous))

    def restore_meter(self, meter: WindowMeter) -> None:
        """Set *meter*, the token counter of a fork, to the parent's counts; no-op if `expected_read` is None."""
        if self.expected_read is not None:
            known = Usage(read=self.expected_read, input=max(0, self.tokens - self.expected_read))
            meter.resume(known, len(self.prefix), self.epoch)

    def check(self, prefix: Prefix) -> None:
        """Raise `PrefixDiffers`, with the first difference, unless a fork's *prefix* begins with this `prefix`."""
        check_hashes(_hashes(self.prefix), prefix, self.prefix.segments)

    def to_bytes(self) -> bytes:
        """Return the fork point as bytes for a file: its fields, properties and hashes of all segments, their bytes."""
        segments = self.prefix.segments
        facts = _StoredPoint(
            **{field.name: getattr(self, field.name) for field in attrs.fields(ParentState)},
            header=self.prefix.header.to_bytes(),
            places=[_SegmentFacts.of(segment) for segment in segments],
            hashes=b"".join(_hashes(self.prefix)),
        )
        head = msgspec.msgpack.encode(facts)
        return b"".join([_SIZE.pack(len(head)), head, *(segment.data for segment in segments)])

    @classmethod
    def from_bytes(cls, stored: bytes | memoryview) -> "ForkPoint":
        """Return the fork point that `to_bytes` has serialized as *stored*.

        Raises `PrefixDiffers` if the bytes of the prefix do not match its hashes, and `ValueError` for bytes that are
        no fork point.
        """
        view = memoryview(stored)
        try:
            (size,) = _SIZE.unpack_from(view)
            facts = msgspec.msgpack.decode(view[_SIZE.size : _SIZE.size + size], type=_StoredPoint)
        except (struct.error, msgspec.MsgspecError) as exc:
            raise ValueError(f"the bytes are not a fork point: {exc}") from exc
        prefix = Prefix(header=KeyHeader.from_bytes(facts.header))
        for section, role, blocks in _runs(facts.places, view[_SIZE.size + size :]):
            prefix = prefix.extended(section, blocks, role)
        width = len(prefix.hash_at(0))
        hashes = [facts.hashes[at : at + width] for at in range(0, len(facts.hashes), width)]
        check_hashes(hashes, prefix)
        return cls(prefix=prefix, **{field.name: getattr(facts, field.name) for field in attrs.fields(ParentState)})


class _SegmentFacts(msgspec.Struct, array_like=True):
    """Stored fields of a segment (block) without its bytes, so that reading a fork point need not parse the block."""

    size: int
    section: Section
    role: Role | None
    opens_message: bool
    type: str
    is_markable: bool
    has_image: bool
    tool_use_id: str | None

    @classmethod
    def of(cls, segment: Segment) -> "_SegmentFacts":
        block = segment.block
        facts = block.type, block.is_markable, block.has_image, block.tool_use_id
        return cls(len(block.data), segment.section, segment.role, segment.opens_message, *facts)

    def block(self, data: bytes) -> Block:
        return Block(
            data=data,
            type=self.type,
            is_markable=self.is_markable,
            has_image=self.has_image,
            tool_use_id=self.tool_use_id,
        )


@attrs.frozen(kw_only=True, eq=False)
class _StoredPoint(ParentState):
    header: bytes
    places: list[_SegmentFacts]
    hashes: bytes
    """Hash of the key header, then for each segment the hash of the prefix that ends with it; concatenated."""


def check_hashes(hashes: Sequence[bytes], prefix: Prefix, theirs: Sequence[Segment] = ()) -> None:
    """Raise `PrefixDiffers` unless *prefix* (a fork's) has the parent's *hashes*: of the header, then of each segment.

    *theirs* are the parent's segments, which the text of the error describes if they are given.
    """
    length = len(hashes) - 1
    if len(prefix) >= length and prefix.hash_at(length) == hashes[-1]:
        return
    if prefix.hash_at(0) != hashes[0]:
        raise PrefixDiffers(None, f"the fork has the key header {prefix.header.to_bytes().decode()}; report this bug")
    index = next((i for i in range(length) if i >= len(prefix) or prefix.hash_at(i + 1) != hashes[i + 1]), length)
    ours = _described(prefix.segments, index)
    raise PrefixDiffers(index, f"{ours} instead of {_described(theirs, index)}" if theirs else f"the fork has {ours}")


def _described(segments: Sequence[Segment], index: int) -> str:
    if index >= len(segments):
        return "nothing"
    segment = segments[index]
    where = segment.section if segment.role is None else f"{segment.section} of the {segment.role}"
    return f"{segment.block_type or 'a definition'} of {len(segment.data)} bytes in {where}"


def _hashes(prefix: Prefix) -> list[bytes]:
    return [prefix.hash_at(length) for length in range(len(prefix) + 1)]


def _runs(places: Sequence[_SegmentFacts], data: memoryview) -> Iterator[tuple[Section, Role | None, list[Block]]]:
    """Yield the blocks stored in *data*, grouped: all tools, all system blocks, then the blocks of each message."""
    run: tuple[Section, Role | None, list[Block]] | None = None
    start = 0
    for place in places:
        if run is None or place.opens_message or run[0] != place.section:
            if run is not None:
                yield run
            run = place.section, place.role, []
        run[2].append(place.block(bytes(data[start : start + place.size])))
        start += place.size
    if run is not None:
        yield run
