"""What is said on a line: a word, which the other end knows."""

import msgspec


class Word(msgspec.Struct, frozen=True, kw_only=True, tag_field="word"):
    """Base of all of them. One that the other end does not know is the end of the line: both are of one version."""
