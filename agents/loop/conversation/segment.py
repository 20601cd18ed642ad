"""Segments: blocks in their position, with the hash of the prefix that ends with them."""

import functools
import hashlib
from typing import get_args

import attrs

from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.model.catalog import Role, Section

HASH_SIZE = 16

_CLOSING: dict[Section | None, bytes] = {None: b"", "tools": b"]", "system": b"]", "messages": b"]}]"}


@attrs.frozen(kw_only=True)
class Segment:
    """One block of a conversation; made once, shared by every fork, never changed."""

    section: Section
    role: Role | None
    """None outside messages."""
    block: Block
    glue: bytes
    """What stands before the block in a request body because of where it is."""
    hash: bytes
    """Of the whole prefix that ends here: equal exactly where the prefixes are byte-equal."""

    @property
    def data(self) -> bytes:
        """The block's bytes, as they came."""
        return self.block.data

    @property
    def block_type(self) -> str:
        """The type the block names, or an empty string."""
        return self.block.type

    @property
    def tool_use_id(self) -> str | None:
        """The call that a `tool_use` makes or a `tool_result` answers."""
        return self.block.tool_use_id

    @property
    def is_markable(self) -> bool:
        """Whether a cache marker may stand here."""
        return self.block.is_markable

    @property
    def opens_message(self) -> bool:
        """Whether it is the first block of its message."""
        return self.section == "messages" and self.glue != b","


def seed_hash(header: bytes) -> bytes:
    """The hash of the empty prefix under a key header."""
    return hashlib.blake2b(header, digest_size=HASH_SIZE).digest()


def link_hash(before: bytes, glue: bytes, data: bytes) -> bytes:
    """The hash of a prefix from the hash of all but its last segment.

    No frame is needed between the parts: glue is one of a few fixed strings, none of which continues
    another with an opening brace, so the same bytes always divide in the same way.
    """
    digest = hashlib.blake2b(before, digest_size=HASH_SIZE)
    digest.update(glue)
    digest.update(data)
    return digest.digest()


@functools.cache
def separator_between(before: Section | None, section: Section, role: Role | None, *, opens: bool) -> bytes:
    """What joins a block to the section *before* it; *opens* says that a message begins with it."""
    if before == section and not opens:
        return b","
    start = b'{"role":"%s","content":[' % role.encode() if role else b""
    if before == section:
        return b"]}," + start
    return _CLOSING[before] + b',"%s":[' % section.encode() + start


def closing(last: Section | None) -> bytes:
    """What closes a body whose last segment is in this section."""
    return _CLOSING[last]


def check_role(role: str) -> None:
    """Raise `ValueError` unless a message can have this role."""
    if role not in get_args(Role):
        raise ValueError(f"{role!r} is not a role; expected one of {', '.join(get_args(Role))}")
