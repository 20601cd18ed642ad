"""Base class of all messages between processes."""

import msgspec


class WireMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base of all of them. One that the other end does not know is the end of the line: both are of one version."""
