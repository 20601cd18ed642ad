"""Worker process that extracts pages of a PDF.

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
"""Seconds after which the script ends, in case its parent has died."""
MEMORY = 2 * 1024**3
"""Maximum bytes of address space."""
MAX_PAGES_BY_DEFAULT = 10
"""Maximum number of pages of a PDF that is shown completely if no pages are given."""
MAX_BYTES = 6 * 1024 * 1024
"""Maximum bytes of the shown pages; base64 adds a third, and a request may have 32 MB in all."""
PYPDF_ERRORS = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""Further exceptions that pypdf raises for invalid files; they only show that the file is damaged."""


class PdfRequest(NamedTuple):
    """Request to extract pages of a PDF."""

    path: str
    packages: str
    """Directory that contains pypdf."""
    first: int | None
    """First page, counted from 1; None for all pages, if there are at most MAX_PAGES_BY_DEFAULT."""
    last: int | None


class PdfPages(NamedTuple):
    """Extracted pages, or the reason why there are none."""

    total: int = 0
    """Number of pages of the file."""
    first: int = 0
    last: int = 0
    data: str = ""
    """The pages as a PDF in base64; empty after a problem."""
    size: int = 0
    """Bytes of the extracted PDF."""
    problem: str | None = None
    """Reason why no pages are returned: encrypted, damaged, long, beyond, heavy."""
    reason: str = ""
    """Error message of pypdf."""


def extract(request: PdfRequest) -> PdfPages:
    """Extract the requested pages to a new PDF, without any other content of the file."""
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
    """Process one request from standard input."""
    signal.alarm(LIFETIME)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = PdfRequest(**json.load(sys.stdin))
    sys.path.append(request.packages)
    logging.disable(logging.CRITICAL)
    json.dump(extract(request)._asdict(), sys.stdout)


if __name__ == "__main__":
    main()
