"""Tests of PDFs in Read."""

import base64
import io
from typing import Any

import msgspec
import psutil
import pytest
import trio
from pypdf import PdfReader

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.token_estimate import PAGE_TOKENS, estimate_block
from coterie.agents.tools.files.pdf import show_pdf
from coterie.agents.tools.files.pdf_worker import MAX_BYTES
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool
from tests.agents.tools.files.pdf_files import bomb, document, encrypted, endless, pdf


async def _read(workspace: Workspace, content: bytes, name: str = "a.pdf", **value: Any) -> ToolResult:
    (workspace.root / name).write_bytes(content)
    return await call_tool({"Read": Read()}, "Read", {"file_path": name, **value}, workspace)


def _pages(result: ToolResult) -> list[str]:
    """Return the text of the shown pages."""
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


async def test_pages_follow_text_in_block_and_count_tokens(workspace: Workspace) -> None:
    block = (await _read(workspace, pdf(30), pages="5-7")).block("toolu_1")
    text, shown = msgspec.json.decode(block)["content"]
    assert text["type"] == "text"
    assert (shown["type"], shown["source"]["type"]) == ("document", "base64")
    assert 3 * PAGE_TOKENS < estimate_block(block) < 3 * PAGE_TOKENS + 100


async def test_pdf_with_empty_password_is_shown(workspace: Workspace) -> None:
    result = await _read(workspace, encrypted(""))
    assert "page 1 of 1" in result.text
    assert b"/Encrypt" not in base64.b64decode(result.documents[0].data)


@pytest.mark.parametrize(
    ("content", "value", "reason"),
    [
        (pdf(11), {}, "has 11 pages; over 10, give the pages to show, at most 20 "),
        (pdf(11), {"pages": "12"}, "has only 11 pages; give pages up to 11"),
        (pdf(11), {"pages": "9-12"}, "has only 11 pages; give pages up to 11"),
        (pdf(40), {"pages": "1-21"}, "at most 20 pages"),
        (pdf(4), {"pages": "0-2"}, "counted from 1"),
        (pdf(4), {"pages": "3-2"}, "a range must be ascending"),
        (pdf(4), {"pages": "first"}, "such as 3 or 1-5"),
        (pdf(4), {"pages": "1,3"}, "such as 3 or 1-5"),
        (encrypted("secret"), {}, "is encrypted. Ask the user for a copy"),
        (b"%PDF-1.7\n\0", {}, "is damaged and cannot be read as a PDF: "),
        (pdf(3)[:200], {}, "is damaged and cannot be read as a PDF: "),
        (document([b"<< /Type /Catalog >>"]), {}, "is damaged and cannot be read as a PDF: "),
        (document([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Kids [] >>"]), {}, "it has no pages"),
        (document([b"<< /Type /Catalog /Pages 1 0 R >>"]), {}, "is damaged"),
        (bomb(), {}, "is damaged"),
        (pdf(2, padding=MAX_BYTES // 2), {}, "Read fewer pages"),
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


async def test_pages_of_text_file_are_refused(workspace: Workspace) -> None:
    result = await _read(workspace, b"text\n", "a.txt", pages="1")
    assert result.is_error
    assert "is not a PDF" in result.text


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
