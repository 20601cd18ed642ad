"""Reading of PDFs: a worker process extracts the requested pages, which the model gets as a smaller PDF."""

import importlib.util
import json
import re
from pathlib import Path

import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.pdf_worker import MAX_BYTES, MAX_PAGES_BY_DEFAULT, PdfPages, PdfRequest
from coterie.agents.tools.tool import Document, ToolResult
from coterie.agents.tools.worker_process import run_worker

BEGINNING = b"%PDF-"
MAX_PAGES = 20
"""Maximum number of PDF pages that one call of the Read tool shows."""

_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?")


def page_range(pages: str) -> tuple[int, int]:
    """Parse *pages*, such as `3` or `1-5`; return the first and the last page. Raises `ToolFailed` if it is invalid."""
    found = _RANGE.fullmatch(pages)
    if found is None:
        raise ToolFailed(f"pages is {pages!r}, but must be a page or a range, such as 3 or 1-5")
    first, last = int(found[1]), int(found[2] or found[1])
    if first < 1 or last < first:
        raise ToolFailed(f"pages is {pages!r}, but pages are counted from 1 and a range must be ascending, as 1-5")
    if last - first >= MAX_PAGES:
        raise ToolFailed(f"pages is {pages!r}, but one call shows at most {MAX_PAGES} pages. Make several calls.")
    return first, last


async def show_pdf(name: str, path: Path, pages: str | None, *, time_limit: float = 30.0) -> ToolResult:
    """Return *pages*, such as `1-5`, of the PDF at *path*; None: all pages, if it has at most MAX_PAGES_BY_DEFAULT.

    Raises `ToolFailed` that names the PDF as *name*, also after *time_limit* seconds. Cancellation kills the worker.
    """
    first, last = (None, None) if pages is None else page_range(pages)
    pypdf = importlib.util.find_spec("pypdf")  # found without importing it
    if pypdf is None or pypdf.origin is None:
        raise ToolFailed("PDFs cannot be read, because the package pypdf is missing. Ask the user to install it.")
    request = PdfRequest(path=str(path), packages=str(Path(pypdf.origin).parents[1]), first=first, last=last)
    with trio.move_on_after(time_limit):
        output = await run_worker("files/pdf_worker.py", json.dumps(request._asdict()).encode(), work="Reading the PDF")
        shown = PdfPages(**json.loads(output))
        if shown.problem is not None:
            raise ToolFailed(_problem(name, shown))
        of = f"page {shown.first}" if shown.first == shown.last else f"pages {shown.first}-{shown.last}"
        return ToolResult(
            text=f"[{name}: PDF, {of} of {shown.total:,}, {shown.size:,} bytes]",
            documents=(Document(media_type="application/pdf", data=shown.data),),
        )
    raise ToolFailed(f"Reading {name} was stopped after {time_limit:g} s. Read fewer pages, or use another copy.")


def _problem(name: str, pages: PdfPages) -> str:
    match pages.problem:
        case "encrypted":
            return f"{name} is encrypted. Ask the user for a copy without a password."
        case "long":
            return (
                f"{name} has {pages.total:,} pages. For over {MAX_PAGES_BY_DEFAULT} pages, give a range of at most "
                f'{MAX_PAGES}, such as pages="1-{min(MAX_PAGES, pages.total)}".'
            )
        case "beyond":
            return f"{name} has only {pages.total:,} pages. Give pages up to {pages.total:,}."
        case "heavy":
            return (
                f"Pages {pages.first}-{pages.last} of {name} have {pages.size:,} bytes, over the limit of "
                f"{MAX_BYTES // 1024**2} MB. Read fewer pages, or extract the text with a command."
            )
    return f"{name} is damaged; use another copy. The PDF reader reports: {' '.join(pages.reason.split())[:200]}"
