"""Check of image files before they are shown to the model: type, size and completeness, read from their bytes.

An invalid image must not enter the conversation, because the Messages API would then reject every later request too.
"""

import base64
from collections.abc import Mapping

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import Image, ToolResult

MAX_IMAGE_BYTES = 5 * 1024 * 1024 // 4 * 3
"""Maximum size of an image in bytes; encoded in base64 this is 5 MB, the limit of the Messages API."""
MAX_SIDE = 8_000
"""Maximum width and height of an image in pixels."""

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"

_ENDS: Mapping[str, bytes] = {PNG: b"IEND\xaeB`\x82", JPEG: b"\xff\xd9", GIF: b"\x3b"}
"""Media type -> bytes that end a complete image. WebP is missing, because it has its length at the beginning."""
_NO_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
"""JPEG markers between 0xC0 and 0xCF that, unlike the others, do not start a frame with width and height."""


def media_type_of(content: bytes) -> str | None:
    """Return the media type of *content* by its first bytes; None if it is not a PNG, JPEG, GIF or WebP image."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if content.startswith(b"\xff\xd8\xff"):
        return JPEG
    if content.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    return WEBP if content.startswith(b"RIFF") and content[8:12] == b"WEBP" else None


def show_image(name: str, media_type: str, content: bytes) -> ToolResult:
    """Return a result with the image *content* of the file *name*. Raises `ToolFailed` if the API would reject it."""
    width, height = checked_size(name, media_type, content)
    return ToolResult(
        text=f"[{name}: {media_type}, {width:,} x {height:,} pixels, {len(content):,} bytes]",
        images=(Image(media_type=media_type, data=base64.b64encode(content).decode()),),
    )


def checked_size(name: str, media_type: str, content: bytes) -> tuple[int, int]:
    """Return width and height of the image *content* in pixels. Raises `ToolFailed` if the API would reject it."""
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolFailed(
            f"{name} is an image over the limit of {MAX_IMAGE_BYTES / 1024**2:g} MB. "
            "Make a smaller copy with a command, and read that."
        )
    width, height = _size(media_type, content)
    if not width or not height:
        raise ToolFailed(f"{name} is a damaged {media_type} file: it has no width and height. Use another copy.")
    # More bytes after the end are allowed, because cameras write them.
    is_whole_webp = len(content) >= 8 + int.from_bytes(content[4:8], "little")
    if not (is_whole_webp if media_type == WEBP else _ENDS[media_type] in content[8:]):
        raise ToolFailed(f"{name} is a damaged {media_type} file: its end is missing. Use another copy.")
    if max(width, height) > MAX_SIDE:
        raise ToolFailed(
            f"{name} has {width:,} x {height:,} pixels; the limit is {MAX_SIDE:,} on each side. "
            "Make a smaller copy with a command, and read that."
        )
    return width, height


def _size(media_type: str, content: bytes) -> tuple[int, int]:
    """Return width and height of the image *content* in pixels, read from its header; zeros if they are missing."""
    if media_type == PNG:
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if media_type == GIF:
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    return _jpeg_size(content) if media_type == JPEG else _webp_size(content)


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Return width and height of a JPEG image from its first frame segment; zeros if it has no complete frame."""
    place = 2
    while len(content) >= place + 9 and content[place] == 0xFF:
        marker = content[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            return int.from_bytes(content[place + 7 : place + 9]), int.from_bytes(content[place + 5 : place + 7])
        # A marker may be preceded by any number of 0xFF bytes.
        place += 1 if marker == 0xFF else 2 + int.from_bytes(content[place + 2 : place + 4])
    return 0, 0


def _webp_size(content: bytes) -> tuple[int, int]:
    """Return width and height of a WebP image from its first chunk (VP8, VP8L or VP8X); zeros for other chunks."""
    kind, body = content[12:16], content[20:30]
    if len(body) < 10:
        return 0, 0
    if kind == b"VP8 ":
        return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    return 0, 0
