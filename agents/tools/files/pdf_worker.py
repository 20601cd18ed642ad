"""Worker process of the Read tool that copies the requested pages of a PDF to a new, smaller PDF.

Reads a `PdfRequest` from standard input and writes `PdfPages` to standard output, both as ASCII JSON. Imports only the
standard library, and pypdf from the directory in the request.
"""

import base64
import io
import json
import logging
import os
import resource
import signal
import sys
from typing import Any, NamedTuple

LIFETIME = 60
"""Seconds after which SIGALRM kills the worker process, in case the agent process that started it has died."""
MEMORY = 2 * 1024**3
"""Limit of the address space of the worker process in bytes, because a malicious PDF can need any amount."""
MAX_PAGES_BY_DEFAULT = 10
"""Maximum number of pages of a PDF that is shown completely if the call of Read names no pages."""
MAX_BYTES = 6 * 1024 * 1024
"""Maximum bytes of the extracted PDF; base64 adds a third, and an API request may have 32 MB in all."""
PYPDF_ERRORS = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""Built-in exceptions that pypdf raises for damaged PDFs, in addition to its own `PyPdfError`."""


class PdfRequest(NamedTuple):
    """Request to the worker process to extract the pages *first* to *last* of the PDF at *path*."""

    path: str
    packages: str
    """Directory that contains the package pypdf; the worker appends it to `sys.path`."""
    first: int | None
    """First page to extract, counted from 1; None for all pages, which fails if there are over MAX_PAGES_BY_DEFAULT."""
    last: int | None


class PdfPages(NamedTuple):
    """Answer of the worker process: the extracted pages as a new PDF, or the problem that prevented it."""

    total: int = 0
    """Number of all pages in the original file; 0 if the file cannot be read."""
    first: int = 0
    last: int = 0
    data: str = ""
    """Extracted pages as a new PDF, encoded in base64; empty after a problem."""
    size: int = 0
    """Size of the extracted PDF in bytes; also set if it is too large to be returned."""
    problem: str | None = None
    """Problem: "encrypted", "damaged", "long" (give a range), "beyond" (no such page), "heavy" (too large) or None."""
    reason: str = ""
    """Details of the problem "encrypted" or "damaged", such as the message of an exception of pypdf; may be empty."""


def extract(request: PdfRequest) -> PdfPages:
    """Copy only the requested pages to a new PDF. Problems with the file are returned, not raised."""
    from pypdf import PdfReader  # noqa: PLC0415 - importable only after the request is read
    from pypdf.errors import DependencyError, PyPdfError  # noqa: PLC0415

    try:
        # Without following a link or waiting for a pipe, which may have replaced the file since the check.
        with os.fdopen(os.open(request.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            reader: Any = PdfReader(file, strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                return PdfPages(problem="encrypted")
            return _extract(reader, request)
    except DependencyError as exc:
        return PdfPages(problem="encrypted", reason=str(exc))
    except MemoryError:
        return PdfPages(problem="damaged", reason="it needs too much memory")
    except (PyPdfError, *PYPDF_ERRORS) as exc:
        return PdfPages(problem="damaged", reason=str(exc) or type(exc).__name__)


def _extract(reader: Any, request: PdfRequest) -> PdfPages:
    from pypdf import PdfWriter  # noqa: PLC0415

    total = len(reader.pages)
    if not total:
        return PdfPages(problem="damaged", reason="it has no pages")
    if request.first is None and total > MAX_PAGES_BY_DEFAULT:
        return PdfPages(total=total, problem="long")
    first, last = (1, total) if request.first is None else (request.first, request.last or request.first)
    if last > total:
        return PdfPages(total=total, problem="beyond")
    writer: Any = PdfWriter()
    for number in range(first - 1, last):
        writer.add_page(reader.pages[number])
    written = io.BytesIO()
    writer.write(written)
    content = written.getvalue()
    if len(content) > MAX_BYTES:
        return PdfPages(total=total, first=first, last=last, size=len(content), problem="heavy")
    data = base64.b64encode(content).decode()
    return PdfPages(total=total, first=first, last=last, data=data, size=len(content))


def main() -> None:
    """Limit time and memory of this process, read a request from standard input, and write the answer to stdout."""
    signal.alarm(LIFETIME)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = PdfRequest(**json.load(sys.stdin))
    sys.path.append(request.packages)
    logging.disable(logging.CRITICAL)
    json.dump(extract(request)._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
