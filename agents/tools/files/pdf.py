"""PDF pages for the model, extracted by a worker process."""

import importlib.util
import json
import re
from pathlib import Path

import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.pdf_worker import PdfPages, PdfRequest
from coterie.agents.tools.tool import Document, ToolResult
from coterie.agents.tools.worker_process import run_worker

BEGINNING = b"%PDF-"
MOST_PAGES = 20
"""Pages shown at once."""
WHOLE_PAGES = 10
"""Pages of a document that is shown whole, without being asked for by page."""
LARGEST_DOCUMENT = 6 * 1024 * 1024
"""Bytes of what is shown: a request may have 32 MB, and in base64 a third more is needed."""
TIME_LIMIT = 30.0
WORKER = Path(__file__).with_name("pdf_worker.py")

_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")


def page_range(pages: str) -> tuple[int, int]:
    """The first and the last page that *pages* means. Raises `ToolFailed`."""
    found = _RANGE.fullmatch(pages)
    if found is None:
        raise ToolFailed(f"pages is {pages!r}, but must be a page or a range, such as 3 or 1-5")
    first, last = int(found[1]), int(found[2] or found[1])
    if first < 1 or last < first:
        raise ToolFailed(f"pages is {pages!r}, but pages are counted from 1, and a range goes upwards")
    if last - first >= MOST_PAGES:
        raise ToolFailed(f"pages is {pages!r}, but no more than {MOST_PAGES} pages can be shown at once")
    return first, last


async def show_pdf(name: str, path: Path, pages: str | None, *, time_limit: float = TIME_LIMIT) -> ToolResult:
    """The *pages* of the PDF at *path*, or all of a short one, for the model that calls it *name*.

    When cancelled, the process that reads the file is killed. Raises `ToolFailed`.
    """
    first, last = (None, None) if pages is None else page_range(pages)
    order = PdfRequest(
        path=str(path), packages=_packages(), first=first, last=last, whole=WHOLE_PAGES, most=LARGEST_DOCUMENT
    )
    with trio.move_on_after(time_limit):
        answer = await run_worker(WORKER, json.dumps(order._asdict()).encode(), work="Reading the PDF")
        return _shown(name, PdfPages(**json.loads(answer)))
    raise ToolFailed(
        f"{name} was not read after {time_limit:g} s, and was given up: it is damaged, or made to be slow."
    )


def _packages() -> str:
    """The directory in which pypdf is, which is found without importing it."""
    found = importlib.util.find_spec("pypdf")
    if found is None or found.origin is None:
        raise ToolFailed("PDFs can be read only where the package pypdf is installed.")
    return str(Path(found.origin).parents[1])


def _shown(name: str, pages: PdfPages) -> ToolResult:
    if pages.problem is not None:
        raise ToolFailed(_problem(name, pages))
    of = f"page {pages.first}" if pages.first == pages.last else f"pages {pages.first}-{pages.last}"
    return ToolResult(
        text=f"[{name}: PDF, {of} of {pages.total:,}, {pages.size:,} bytes]",
        documents=(Document(media_type="application/pdf", data=pages.data),),
    )


def _problem(name: str, pages: PdfPages) -> str:
    match pages.problem:
        case "encrypted":
            return f"{name} is encrypted, and cannot be read without its password. Ask the user for a copy without one."
        case "long":
            return (
                f"{name} has {pages.total:,} pages, and up to {WHOLE_PAGES} are shown without being asked for. "
                f'Ask for some of them, at most {MOST_PAGES} at once: pages="1-{min(MOST_PAGES, pages.total)}".'
            )
        case "beyond":
            return f"{name} has {pages.total:,} pages: ask for pages up to {pages.total:,}."
        case "heavy":
            most = LARGEST_DOCUMENT // 1024**2
            return (
                f"Pages {pages.first}-{pages.last} of {name} have {pages.size:,} bytes, over the {most} MB that can be "
                "shown at once. Ask for fewer pages, or take the text out with a command."
            )
    return f"{name} is damaged, and cannot be read as a PDF: {' '.join(pages.reason.split())[:200]}"
