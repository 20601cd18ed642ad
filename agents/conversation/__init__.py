"""A conversation is bytes: serialised once, never edited, joined into requests.

What is appended is kept as it came, so byte identity of prefixes is a property of the structure:

- a segment's bytes never change, and its hash is equal exactly where the whole prefix is byte-equal;
- a fork shares its parent's segments, a loaded transcript has the bytes and hashes that were recorded;
- earlier bytes are never edited: a rewrite, or a change of the key header, begins a new epoch;
- cache markers exist only in rendered requests, at most four of them.
"""

from coterie.agents.conversation.blocks import Block, text_block
from coterie.agents.conversation.conversation import Conversation
from coterie.agents.conversation.key_header import KeyHeader
from coterie.agents.conversation.markers import FIVE_MINUTES, Lifetimes, Marks, Ttl
from coterie.agents.conversation.prefix import Message, Prefix
from coterie.agents.conversation.render import Rendered
from coterie.agents.conversation.segments import Role, Segment
from coterie.agents.conversation.transcript import Loaded, TranscriptWriter, load_transcript

__all__ = [
    "FIVE_MINUTES",
    "Block",
    "Conversation",
    "KeyHeader",
    "Lifetimes",
    "Loaded",
    "Marks",
    "Message",
    "Prefix",
    "Rendered",
    "Role",
    "Segment",
    "TranscriptWriter",
    "Ttl",
    "load_transcript",
    "text_block",
]
