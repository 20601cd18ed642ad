"""Names for messages: unique anywhere, and sorted by when they were made."""

import os
import time
from typing import NewType

MessageId = NewType("MessageId", str)

_SIX_BYTES = (1 << 48) - 1
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_message_id() -> MessageId:
    """A UUID of version 7: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000 & _SIX_BYTES
    digits = (milliseconds.to_bytes(6, "big") + os.urandom(10)).hex()
    # The version comes before the random bits, and the variant is a digit that begins with the bits 10.
    return MessageId(
        f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
    )
