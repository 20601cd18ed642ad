"""Segments: the blocks of a conversation at their positions, each with the hash of everything up to its end."""

import functools
import hashlib

import attrs

from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.model.catalog import Role, Section

HASH_SIZE = 16

CLOSING: dict[Section | None, bytes] = {None: b"", "tools": b"]", "system": b"]", "messages": b"]}]"}
"""Section of a request -> JSON that ends it in the body, such as `]` after the tools; for None (no section), empty."""


@attrs.frozen(kw_only=True)
class Segment:
    """One tool definition, system block or message block at its place in a conversation. Immutable; copies share it."""

    section: Section
    role: Role | None
    """Role of the message that contains the block; None for tool definitions and system blocks."""
    block: Block
    glue: bytes
    """JSON between the previous block and this one in a request body, such as `,` between blocks of a message."""
    hash: bytes
    """Hash of the request parameters and all segments up to this one; equal only if all these bytes are equal."""

    @property
    def data(self) -> bytes:
        """JSON bytes of the block, exactly as it was appended to the conversation."""
        return self.block.data

    @property
    def block_type(self) -> str:
        """Type of the block, such as `text` or `tool_use`; empty for most tool definitions, which have no type."""
        return self.block.type

    @property
    def tool_use_id(self) -> str | None:
        """Id of the tool call, if the block is a `tool_use` (the call) or a `tool_result` (its answer); else None."""
        return self.block.tool_use_id

    @property
    def is_markable(self) -> bool:
        """True if the block may carry a cache marker (`cache_control`), unlike, for example, thinking or empty text."""
        return self.block.is_markable

    @property
    def opens_message(self) -> bool:
        """True if the block is the first one of a message; False for all other blocks, also outside messages."""
        return self.section == "messages" and self.glue != b","


def seed_hash(header: bytes) -> bytes:
    """Return the hash of a conversation without any blocks: that of *header*, its serialized request parameters."""
    return hashlib.blake2b(header, digest_size=HASH_SIZE).digest()


def link_hash(before: bytes, glue: bytes, data: bytes) -> bytes:
    """Return the hash after a segment (*glue*, then *data*) is appended to a prefix whose hash is *before*.

    No separator between *glue* and *data* is hashed. *glue* is one of a few fixed strings, and none of them continues
    another with an opening brace, with which *data* begins; so the same bytes always divide in the same way.
    """
    digest = hashlib.blake2b(before, digest_size=HASH_SIZE)
    digest.update(glue)
    digest.update(data)
    return digest.digest()


@functools.cache
def separator_between(before: Section | None, section: Section, role: Role | None, *, opens: bool) -> bytes:
    """Return the JSON before a block of *section* and after one of *before* (or None); *opens*: a message begins."""
    if before == section and not opens:
        return b","
    start = b'{"role":"%s","content":[' % role.encode() if role else b""
    if before == section:
        return b"]}," + start
    return CLOSING[before] + b',"%s":[' % section.encode() + start
