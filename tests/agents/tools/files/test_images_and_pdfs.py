"""Tests of images and PDFs in Read."""

import base64
import io
import struct
from typing import Any

import msgspec
import psutil
import pytest
import trio
from pypdf import PdfReader

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.images import MAX_IMAGE_BYTES, MAX_SIDE
from coterie.agents.tools.files.pdf import show_pdf
from coterie.agents.tools.files.pdf_worker import MAX_BYTES
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Image, ToolResult, Workspace
from tests.agents.tools.files.notebook_files import png
from tests.agents.tools.files.pdf_files import bomb, document, encrypted, endless, pdf
from tests.agents.tools.tool_calls import call


def _gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"\x2c\0\0\0\0\1\0\1\0\0\2\2\x44\1\0\x3b"


def _jpeg(width: int, height: int, *, frame: int = 0xC0) -> bytes:
    """Build a JPEG with a segment whose marker resembles a frame marker, and with fill bytes before a marker."""
    header = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    table = b"\xff\xc4\x00\x05\1\2\3\xff"
    return header + table + struct.pack(">BBHBHHB", 0xFF, frame, 8, 8, height, width, 0) + b"\xff\xd9"


def _webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def _lossy(width: int, height: int) -> bytes:
    return _webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + b"\0" * 8)


def _lossless(width: int, height: int) -> bytes:
    return _webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 8)


def _extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return _webp(b"VP8X", b"\0\0\0\0" + sides)


async def _read(workspace: Workspace, content: bytes, name: str = "any-name", **value: Any) -> ToolResult:
    (workspace.root / name).write_bytes(content)
    return await call(Read(), workspace, file_path=name, **value)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (png(640, 480), "image/png"),
        (_gif(640, 480), "image/gif"),
        (_jpeg(640, 480), "image/jpeg"),
        (_jpeg(640, 480, frame=0xC2), "image/jpeg"),
        (_lossy(640, 480), "image/webp"),
        (_lossless(640, 480), "image/webp"),
        (_extended(640, 480), "image/webp"),
    ],
)
async def test_image_is_shown_regardless_of_name(content: bytes, media_type: str, workspace: Workspace) -> None:
    result = await _read(workspace, content, "notes.txt")
    assert result == ToolResult(
        text=f"[notes.txt: {media_type}, 640 x 480 pixels, {len(content):,} bytes]",
        images=(Image(media_type=media_type, data=base64.b64encode(content).decode()),),
    )
    assert [part["type"] for part in msgspec.json.decode(result.block("toolu_1"))["content"]] == ["text", "image"]


async def test_image_may_exceed_text_limit(workspace: Workspace) -> None:
    content = png(2, 2, padding=MAX_IMAGE_BYTES - len(png(2, 2)) - 12)
    assert len(content) == MAX_IMAGE_BYTES
    result = await _read(workspace, content)
    assert not result.is_error
    assert len(result.images[0].data) == 5 * 1024 * 1024


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png(padding=MAX_IMAGE_BYTES), "over the limit of 3.75 MB"),
        (png(padding=9 * 1024 * 1024), "over the limit of 3.75 MB"),
        (_jpeg(MAX_SIDE + 1, 2), "8,001"),
        (_extended(2, MAX_SIDE + 1), "8,001"),
    ],
    ids=["bytes", "many bytes", "width", "height"],
)
async def test_too_large_image_is_refused_with_advice(content: bytes, reason: str, workspace: Workspace) -> None:
    result = await _read(workspace, content)
    assert (result.is_error, reason in result.text, "Make a smaller copy" in result.text) == (True, True, True)


DAMAGED = [
    *(picture[:-2] for picture in (png(640, 480), _gif(640, 480), _jpeg(640, 480), _lossy(640, 480))),
    *(png(640, 480)[:16], png(0, 480), _gif(640, 480)[:6] + b"\0", _jpeg(640, 480)[:24], _lossy(640, 480)[:25]),
    *(b"\xff\xd8\xff\xe0\0\0" + b"\xff" * 100, _webp(b"ALPH", b"\0" * 20)),
]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, "is a damaged image") for content in DAMAGED),
        (b"RIFF\0\0\0\0WAVE", "is a binary file"),
        (b"\x7fELF\0", "is a binary file"),
    ],
)
async def test_damaged_image_or_other_binary_is_refused(content: bytes, reason: str, workspace: Workspace) -> None:
    result = await _read(workspace, content)
    assert (result.is_error, result.images, reason in result.text) == (True, (), True)


async def test_text_mentioning_image_type_is_text(workspace: Workspace) -> None:
    assert (await _read(workspace, b"GIF89a is a format\n")).text == "     1\tGIF89a is a format"


def _pages(result: ToolResult) -> list[str]:
    [shown] = result.documents
    assert shown.media_type == "application/pdf"
    pages = PdfReader(io.BytesIO(base64.b64decode(shown.data))).pages
    contents = [page["/Contents"].get_object().get_data().decode() for page in pages]  # type: ignore[union-attr]
    return [content.partition("(")[2].partition(")")[0] for content in contents]


@pytest.mark.parametrize("name", ["a.pdf", "scan"])
async def test_short_pdf_is_shown_completely_regardless_of_name(workspace: Workspace, name: str) -> None:
    result = await _read(workspace, pdf(10), name)
    assert result.text.startswith(f"[{name}: PDF, pages 1-10 of 10, ")
    assert _pages(result) == [f"page {n}" for n in range(1, 11)]


@pytest.mark.parametrize(
    ("pages", "first", "last"), [("3", 3, 3), ("1-5", 1, 5), (" 21 - 40 ", 21, 40), ("40-40", 40, 40)]
)
async def test_requested_pages_are_shown(workspace: Workspace, pages: str, first: int, last: int) -> None:
    result = await _read(workspace, pdf(40), pages=pages)
    assert f"page {first} of 40" in result.text or f"pages {first}-{last} of 40" in result.text
    assert _pages(result) == [f"page {n}" for n in range(first, last + 1)]


async def test_pdf_with_empty_password_is_shown(workspace: Workspace) -> None:
    result = await _read(workspace, encrypted(""))
    assert "page 1 of 1" in result.text
    assert b"/Encrypt" not in base64.b64decode(result.documents[0].data)


@pytest.mark.parametrize(
    ("content", "value", "reason"),
    [
        (pdf(11), {}, "has 11 pages. For over 10 pages, give a range of at most 20"),
        (pdf(11), {"pages": "12"}, "has only 11 pages. Give pages up to 11"),
        (pdf(11), {"pages": "9-12"}, "has only 11 pages. Give pages up to 11"),
        (pdf(40), {"pages": "1-21"}, "at most 20 pages"),
        (pdf(4), {"pages": "0-2"}, "counted from 1"),
        (pdf(4), {"pages": "3-2"}, "a range must be ascending"),
        (pdf(4), {"pages": "first"}, "such as 3 or 1-5"),
        (pdf(4), {"pages": "1,3"}, "such as 3 or 1-5"),
        (encrypted("secret"), {}, "is encrypted. Ask the user for a copy"),
        (b"%PDF-1.7\n\0", {}, "is damaged; use another copy"),
        (pdf(3)[:200], {}, "is damaged; use another copy"),
        (document([b"<< /Type /Catalog >>"]), {}, "is damaged; use another copy"),
        (document([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Kids [] >>"]), {}, "it has no pages"),
        (document([b"<< /Type /Catalog /Pages 1 0 R >>"]), {}, "is damaged"),
        (bomb(), {}, "is damaged"),
        (pdf(2, padding=MAX_BYTES // 2), {}, "Read fewer pages"),
        (b"text\n", {"pages": "1"}, "is not a PDF"),
    ],
)
async def test_unshowable_pdf_is_refused_with_one_line(
    workspace: Workspace, content: bytes, value: dict[str, Any], reason: str
) -> None:
    result = await _read(workspace, content, **value)
    assert result.is_error
    assert not result.documents
    assert reason in result.text
    assert "\n" not in result.text


async def test_page_of_large_pdf_is_shown(workspace: Workspace) -> None:
    content = pdf(4, padding=3 * 1024 * 1024)
    assert len(content) > 8 * 1024 * 1024
    assert _pages(await _read(workspace, content, pages="2")) == ["page 2"]


def _workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "pdf_worker" in " ".join(child.cmdline())]


async def test_slow_or_cancelled_pdf_is_stopped_without_leftover_process(workspace: Workspace) -> None:
    path = workspace.root / "a.pdf"
    path.write_bytes(endless())
    with pytest.raises(ToolFailed, match=r"was stopped after 1 s|is damaged"):
        await show_pdf("a.pdf", path, "1", time_limit=1)
    assert not _workers()
    with trio.move_on_after(0.3) as scope:
        await show_pdf("a.pdf", path, "1")
    assert scope.cancelled_caught
    assert not _workers()
