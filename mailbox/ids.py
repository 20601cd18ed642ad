"""Names for messages: unique anywhere, and sorted by when they were made."""

import os
import time
from typing import NewType

MessageId = NewType("MessageId", str)

_SIX_BYTES = (1 << 48) - 1
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_message_id() -> MessageId:
    """A UUID of version 7: 48 bits of milliseconds, then random bits."""
    time_digits = f"{time.time_ns() // 1_000_000 & _SIX_BYTES:012x}"
    random = os.urandom(10).hex()
    # The version comes first, and the variant is a digit that begins with the bits 10.
    rest = f"7{random[:3]}-{_VARIANTS[random[3]]}{random[4:7]}-{random[7:19]}"
    return MessageId(f"{time_digits[:8]}-{time_digits[8:]}-{rest}")
