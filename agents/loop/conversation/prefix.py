"""Prefixes: the stored content of conversations, each as request parameters and first blocks of a shared log."""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, get_args

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.segment import Segment, link_hash, seed_hash, separator_between
from coterie.agents.loop.conversation.segment_log import SegmentLog
from coterie.agents.loop.model.catalog import Role, Section


class PrefixMessage(NamedTuple):
    """One message: role, and content blocks as JSON bytes. Functions that take messages also accept plain pairs."""

    role: Role
    blocks: Sequence[bytes]


@attrs.frozen(kw_only=True, eq=False)
class Prefix:
    """Immutable content of a conversation: request parameters (*header*), and the first *length* segments of a log.

    A segment is one block. Several prefixes share one log. Extending the longest prefix appends to the log; extending a
    shorter one copies the list of segments, never their bytes.
    """

    header: KeyHeader
    _log: SegmentLog = attrs.field(factory=SegmentLog)
    _length: int = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Segment:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._log.segments[index]

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments (tools, system blocks, message blocks) in order, as a new list of the shared objects."""
        return self._log.segments[: self._length]

    @property
    def last(self) -> Segment | None:
        """Last segment (block); None if the prefix has no segments."""
        return self._log.segments[self._length - 1] if self._length else None

    @property
    def prompt_length(self) -> int:
        """Number of segments before the first message: the tool definitions and the blocks of the system prompt."""
        return prompt_length(self._log.segments, self._length)

    def has_tool(self, name: str) -> bool:
        """Return True if the prefix contains the definition of the tool *name*."""
        tools = (segment.data for segment in self.segments if segment.section == "tools")
        return any(msgspec.json.decode(tool).get("name") == name for tool in tools)

    def hash_at(self, length: int) -> bytes:
        """Return the hash of the key header (request parameters) and the first *length* segments (blocks)."""
        return self._log.segments[length - 1].hash if length else seed_hash(self.header.to_bytes())

    def to_bytes(self, length: int | None = None) -> bytes:
        """Return request parameters (key header) and the first *length* segments (blocks), by default all, as bytes."""
        end = self._length if length is None else min(length, self._length)
        return b"".join([self.header.to_bytes(), *self._log.chunks(end, {})])

    def chunks(self, replaced: Mapping[int, bytes]) -> list[bytes]:
        """Return the request bytes of all segments in a few chunks; *replaced*: index -> bytes in place of a block."""
        return self._log.chunks(self._length, replaced)

    def extended(self, section: Section, blocks: Iterable[Block], role: Role | None = None) -> "Prefix":
        """Return a longer prefix with *blocks* appended to *section*; with a *role* they form one new message."""
        added: list[Segment] = []
        before, running = self.last, self.hash_at(self._length)
        for block in blocks:
            opens = role is not None and not added
            glue = separator_between(before and before.section, section, role, opens=opens)
            running = link_hash(running, glue, block.data)
            before = Segment(section=section, role=role, block=block, glue=glue, hash=running)
            added.append(before)
        log = self._log if len(self._log.segments) == self._length else self._log.cut(self._length)
        log.extend(added)
        return Prefix(header=self.header, log=log, length=self._length + len(added))

    def with_message(self, role: Role, blocks: Iterable[Block]) -> "Prefix":
        """Return a longer prefix with one message appended. Raises `ValueError` for an unknown role or no blocks."""
        if role not in get_args(Role):
            raise ValueError(f"unknown role {role!r} of a message; use one of {', '.join(get_args(Role))}")
        longer = self.extended("messages", blocks, role)
        if len(longer) == len(self):
            raise ValueError(f"the {role} message has no content; a message needs at least one block")
        return longer

    def cut(self, length: int) -> "Prefix":
        """Return the prefix that consists of the first *length* segments (blocks), without copying them."""
        return attrs.evolve(self, length=length)

    def under(self, header: KeyHeader) -> "Prefix":
        """Return a prefix with the same blocks, but another key header (parameters), so that all its hashes differ."""
        segments, running = [], seed_hash(header.to_bytes())
        for segment in self.segments:
            running = link_hash(running, segment.glue, segment.data)
            segments.append(attrs.evolve(segment, hash=running))
        return Prefix(
            header=header, log=attrs.evolve(self._log.cut(self._length), segments=segments), length=self._length
        )

    def messages(self, start: int = 0) -> list[PrefixMessage]:
        """Return the messages from segment (block) *start* on, which must begin a message or precede all messages."""
        found: list[tuple[Role, list[bytes]]] = []
        for segment in self._log.segments[max(start, self.prompt_length) : self._length]:
            assert segment.role is not None
            if segment.opens_message:
                found.append((segment.role, []))
            found[-1][1].append(segment.data)
        return [PrefixMessage(role, tuple(blocks)) for role, blocks in found]

    def first_difference(self, other: "Prefix") -> int | None:
        """Return the first index at which the blocks differ or are missing; 0 if the headers differ; None if equal."""
        shorter = min(len(self), len(other))
        if self.hash_at(0) != other.hash_at(0):
            return 0
        # Each hash covers all earlier segments: after the first difference all hashes differ.
        index = bisect.bisect_left(range(shorter), x=True, key=lambda i: self.hash_at(i + 1) != other.hash_at(i + 1))
        return None if index == len(self) == len(other) else index


class SegmentSequence(Protocol):
    """Protocol of a read-only sequence of segments (blocks): a list, or a `Prefix` without a copy of its segments."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Segment: ...


def prompt_length(segments: SegmentSequence, length: int | None = None) -> int:
    """Return how many of the first *length* segments, by default all, are tools or system blocks, not messages."""
    return bisect.bisect_left(segments, x=True, hi=length, key=lambda segment: segment.section == "messages")
