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
PYPDF_ERRORS = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""Further exceptions that pypdf raises for invalid files; they only show that the file is damaged."""


class PdfRequest(NamedTuple):
    """Request to extract pages of a PDF."""

    path: str
    packages: str
    """Directory that contains pypdf."""
    first: int | None
    """First page, counted from 1; None for all pages, if there are at most *whole*."""
    last: int | None
    whole: int
    most: int
    """Maximum bytes of the extracted document."""


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
        with open(request.path, "rb", opener=_open_file) as file:
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
    if request.first is None and total > request.whole:
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
    if len(content) > request.most:
        return PdfPages(total=total, first=first, last=last, size=len(content), problem="heavy")
    data = base64.b64encode(content).decode()
    return PdfPages(total=total, first=first, last=last, data=data, size=len(content))


def _open_file(path: str, flags: int) -> int:
    """Open a file without following a link or waiting for a pipe, which may have replaced it since the check."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


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
