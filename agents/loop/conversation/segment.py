"""Segments: blocks at a position of a conversation, with the hash of the prefix that ends there."""

import functools
import hashlib

import attrs

from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.model.catalog import Role, Section

HASH_SIZE = 16

CLOSING: dict[Section | None, bytes] = {None: b"", "tools": b"]", "system": b"]", "messages": b"]}]"}
"""JSON that closes a body, by the section of its last segment."""


@attrs.frozen(kw_only=True)
class Segment:
    """One block of a conversation; immutable and shared by all forks."""

    section: Section
    role: Role | None
    """None outside messages."""
    block: Block
    glue: bytes
    """JSON punctuation before the block in a request body, which depends on the position of the block."""
    hash: bytes
    """Hash of the whole prefix that ends with this segment: equal exactly if the prefixes are byte-equal."""

    @property
    def data(self) -> bytes:
        """The bytes of the block, unchanged."""
        return self.block.data

    @property
    def block_type(self) -> str:
        """The type of the block, or an empty string."""
        return self.block.type

    @property
    def tool_use_id(self) -> str | None:
        """Id of the call that a `tool_use` makes or a `tool_result` answers."""
        return self.block.tool_use_id

    @property
    def is_markable(self) -> bool:
        """True if the segment may carry a cache marker."""
        return self.block.is_markable

    @property
    def opens_message(self) -> bool:
        """True if the segment is the first block of its message."""
        return self.section == "messages" and self.glue != b","


def seed_hash(header: bytes) -> bytes:
    """Return the hash of the empty prefix under a key header."""
    return hashlib.blake2b(header, digest_size=HASH_SIZE).digest()


def link_hash(before: bytes, glue: bytes, data: bytes) -> bytes:
    """Return the hash of a prefix, given the hash *before* its last segment and that segment.

    The parts need no separator: glue is one of a few fixed strings, and none of them continues another with an opening
    brace, so that the same bytes always divide in the same way.
    """
    digest = hashlib.blake2b(before, digest_size=HASH_SIZE)
    digest.update(glue)
    digest.update(data)
    return digest.digest()


@functools.cache
def separator_between(before: Section | None, section: Section, role: Role | None, *, opens: bool) -> bytes:
    """Return the JSON between section *before* and a block; *opens* is True for the first block of a message."""
    if before == section and not opens:
        return b","
    start = b'{"role":"%s","content":[' % role.encode() if role else b""
    if before == section:
        return b"]}," + start
    return CLOSING[before] + b',"%s":[' % section.encode() + start
