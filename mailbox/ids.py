"""Names for messages: unique anywhere, and sorted by when they were made."""

import os
import time
from typing import NewType

MessageId = NewType("MessageId", str)


def new_message_id() -> MessageId:
    """A UUID of version 7: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76  # the version
    value = value & ~(0x3 << 62) | 0x2 << 62  # the variant
    text = f"{value:032x}"
    return MessageId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
