"""Images for the model: type and size read from their bytes.

An image that the API refuses is refused again with every later turn, so it must not get into a conversation.
"""

import base64
from collections.abc import Callable, Mapping

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import Image, ToolResult

LARGEST_IMAGE = 5 * 1024 * 1024 // 4 * 3
"""Bytes of an image: in base64, in which the API measures them, they are 5 MB."""
LONGEST_SIDE = 8_000
"""Pixels of an image's width or height."""

PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"

_ENDS: Mapping[str, bytes] = {PNG: b"IEND\xaeB`\x82", JPEG: b"\xff\xd9", GIF: b"\x3b"}
"""What an image ends with; of a WebP the beginning says how long it is."""
_NO_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
"""Markers of a JPEG that are among those of frames, and begin something else."""


def media_type_of(content: bytes) -> str | None:
    """What kind of image *content* begins as, whatever its file is called; None if it is none the model can look at."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if content.startswith(b"\xff\xd8\xff"):
        return JPEG
    if content.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    return WEBP if content.startswith(b"RIFF") and content[8:12] == b"WEBP" else None


def show_image(name: str, media_type: str, content: bytes) -> ToolResult:
    """The image *content* and a word about it, for the model that calls it *name*. Raises `ToolFailed`."""
    width, height = checked_size(name, media_type, content)
    return ToolResult(
        text=f"[{name}: {media_type}, {width:,} x {height:,} pixels, {len(content):,} bytes]",
        images=(Image(media_type=media_type, data=base64.b64encode(content).decode()),),
    )


def checked_size(name: str, media_type: str, content: bytes) -> tuple[int, int]:
    """Width and height of the image *content*. Raises `ToolFailed` if the API would refuse it."""
    if len(content) > LARGEST_IMAGE:
        raise ToolFailed(
            f"{name} is an image of over {LARGEST_IMAGE / 1024**2:g} MB, and the model can be shown no larger one. "
            "Make a smaller copy with a command, and read that."
        )
    width, height = _SIZES[media_type](content)
    if not width or not height:
        raise ToolFailed(f"{name} begins as {media_type}, but is damaged: it has no width and height.")
    if not _is_whole(media_type, content):
        raise ToolFailed(f"{name} begins as {media_type}, but is damaged: its end is missing.")
    if max(width, height) > LONGEST_SIDE:
        raise ToolFailed(
            f"{name} has {width:,} x {height:,} pixels, and the model can be shown {LONGEST_SIDE:,} on a side. "
            "Make a smaller copy with a command, and read that."
        )
    return width, height


def _is_whole(media_type: str, content: bytes) -> bool:
    """Whether the image has an end; cameras and servers put more behind it, and nobody minds."""
    if media_type == WEBP:
        return len(content) >= 8 + int.from_bytes(content[4:8], "little")
    return _ENDS[media_type] in content[8:]


def _png_size(content: bytes) -> tuple[int, int]:
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


def _gif_size(content: bytes) -> tuple[int, int]:
    return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Width and height of the first frame, behind any number of other parts; zeros if there is none."""
    place = 2
    while len(content) >= place + 9 and content[place] == 0xFF:
        marker = content[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            return int.from_bytes(content[place + 7 : place + 9]), int.from_bytes(content[place + 5 : place + 7])
        # A marker may be filled up with any number of 0xFF.
        place += 1 if marker == 0xFF else 2 + int.from_bytes(content[place + 2 : place + 4])
    return 0, 0


def _webp_size(content: bytes) -> tuple[int, int]:
    """Width and height as the first part has them, which is of one of three kinds; zeros if it is of none."""
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


_SIZES: Mapping[str, Callable[[bytes], tuple[int, int]]] = {
    PNG: _png_size,
    JPEG: _jpeg_size,
    GIF: _gif_size,
    WEBP: _webp_size,
}
