"""The Read tool."""

import codecs
import io
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.token_estimate import estimate_text
from coterie.agents.tools.files.images import media_type_of, show_image
from coterie.agents.tools.files.notebook import SUFFIX as NOTEBOOK
from coterie.agents.tools.files.notebook import Notebook
from coterie.agents.tools.files.notebook_view import show_notebook
from coterie.agents.tools.files.pdf import BEGINNING as PDF
from coterie.agents.tools.files.pdf import show_pdf
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.workspace.file_change import missing_file_hint
from coterie.agents.tools.workspace.read_tracking import LARGEST

WHOLE_FILE_LIMIT = 256 * 1024
TOKEN_LIMIT = 25_000
LINE_LIMIT = 2_000
"""Characters of one line that are shown."""
SNIFFED = 8 * 1024
"""Bytes at the beginning that tell text from binary."""
LINE_BYTES = 4 * LINE_LIMIT + 1
"""Bytes of a line that are looked at: no character takes more than four, so a longer line is over the limit."""

NOT_UTF8 = "[not valid UTF-8: the bytes that could not be decoded are shown as \N{REPLACEMENT CHARACTER}]"
EMPTY = "[the file is empty]"


@attrs.frozen(kw_only=True)
class ReadInput:
    """Which file, and which lines of it."""

    file_path: str = attrs.field(metadata=described("The file, absolute or relative to the project directory."))
    offset: int = attrs.field(
        default=1, metadata=described("The number of the first line to show; of a notebook, of the first cell.")
    )
    limit: int | None = attrs.field(
        default=None, metadata=described("How many lines, or cells, to show; without it all up to the end.")
    )
    pages: str | None = attrs.field(
        default=None, metadata=described("Of a PDF, the pages to show: 3, or 1-5; at most 20, and needed for over 10.")
    )


class Read:
    """Shows a text file, a notebook or a PDF, or a part of it, or an image."""

    name: ClassVar = "Read"
    description: ClassVar = tool_description("read")
    input_type: ClassVar = ReadInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = None

    def paths_affected(self, arguments: ReadInput, workspace: Workspace) -> list[Path]:
        """The file."""
        return [workspace.locate(arguments.file_path)]

    async def run(self, arguments: ReadInput, workspace: Workspace) -> ToolResult:
        """What was asked for. A cancelled call may leave its thread reading, but no process; it changes nothing."""
        path = workspace.locate(arguments.file_path)
        result, content = await trio.to_thread.run_sync(_read_sync, arguments, path, abandon_on_cancel=True)
        if result is None:
            result = await show_pdf(arguments.file_path, path, arguments.pages)
        # Not in the thread: a call that was cancelled has shown nothing.
        if content is not None:
            workspace.seen.record(path, content)
        return result


def _read_sync(wanted: ReadInput, path: Path) -> tuple[ToolResult | None, bytes | None]:
    """What to show, and all that stands in the file.

    The first is None for a PDF, the second for a file that is too large to be edited.
    """
    _check_range(wanted)
    try:
        size = _checked_size(wanted, path)
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
            if content.startswith(PDF):
                return None, content if len(content) <= LARGEST else None
            _check_pages(wanted)
            if b"\0" in content[:SNIFFED]:
                # Seen like any other file, so that Write refuses it for what it is, not for being unread.
                return _binary(wanted, content), content
            if path.suffix == NOTEBOOK and len(content) <= LARGEST:
                return _notebook(wanted, content), content
            _check_whole(wanted, size)
            if len(content) <= LARGEST:
                return ToolResult(text=_numbered(wanted, io.BytesIO(content))), content
            file.seek(0)
            return ToolResult(text=_numbered(wanted, file)), None
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ToolFailed(f"{wanted.file_path} does not exist{missing_file_hint(path)}") from exc
    except OSError as exc:
        raise ToolFailed(f"{wanted.file_path} cannot be read: {exc.strerror}") from exc


def _check_range(wanted: ReadInput) -> None:
    if wanted.offset < 1:
        raise ToolFailed(f"offset is {wanted.offset}, but lines are counted from 1")
    if wanted.limit is not None and wanted.limit < 1:
        raise ToolFailed(f"limit is {wanted.limit}, but at least 1 line must be asked for")


def _checked_size(wanted: ReadInput, path: Path) -> int:
    """The file's size; refuses what is no file to be read, in particular a pipe, which would block when opened."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{wanted.file_path} is a directory. Read shows files; list a directory with ls.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{wanted.file_path} is not a regular file")
    return status.st_size


def _check_pages(wanted: ReadInput) -> None:
    if wanted.pages is not None:
        raise ToolFailed(f"{wanted.file_path} is no PDF, so it has no pages. Leave pages out.")


def _binary(wanted: ReadInput, content: bytes) -> ToolResult:
    media_type = media_type_of(content)
    if media_type is None:
        raise ToolFailed(
            f"{wanted.file_path} is binary: it has NUL bytes. Read shows text, notebooks, images and PDFs."
        )
    return show_image(wanted.file_path, media_type, content)


def _notebook(wanted: ReadInput, content: bytes) -> ToolResult:
    """The cells; of what only is called a notebook the lines, so that it can be mended."""
    try:
        notebook = Notebook.read(content.decode())
    except ValueError as exc:
        _check_whole(wanted, len(content))
        reason = f"[not a notebook that can be shown by cells: {exc}; these are its lines]"
        return ToolResult(text=f"{reason}\n{_numbered(wanted, io.BytesIO(content))}")
    name = wanted.file_path
    return show_notebook(name, notebook, first=wanted.offset, count=wanted.limit, tokens=TOKEN_LIMIT)


def _check_whole(wanted: ReadInput, size: int) -> None:
    if size > WHOLE_FILE_LIMIT and wanted.offset == 1 and wanted.limit is None:
        raise ToolFailed(
            f"{wanted.file_path} has {size:,} bytes, over the {WHOLE_FILE_LIMIT // 1024} KB that can be "
            "read whole. Give a range (offset and limit), or search for the part you need."
        )


def _numbered(wanted: ReadInput, file: BinaryIO) -> str:
    shown: list[str] = []
    tokens = seen = 0
    is_clean = True
    for number, (piece, size) in enumerate(_lines(file), 1):
        seen = number
        if number < wanted.offset:
            continue
        line, is_line_clean = _decode(piece, is_whole=len(piece) == size)
        is_clean = is_clean and is_line_clean
        shown.append(f"{number:6}\t{_cut(line, size)}")
        # One more for the end of the line. Counted line by line, so that the range proposed is one that fits.
        tokens += estimate_text(shown[-1]) + 1
        if tokens > TOKEN_LIMIT:
            raise _too_much(wanted, fitting=len(shown) - 1)
        if len(shown) == wanted.limit:
            break
    if not shown and wanted.offset > 1:
        raise ToolFailed(f"{wanted.file_path} has {seen:,} lines; line {wanted.offset:,} is behind its end")
    return "\n".join(([] if is_clean else [NOT_UTF8]) + (shown or [EMPTY]))


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The beginning of each line, and the size of the whole line, both without its end; memory stays bounded."""
    while piece := file.readline(LINE_BYTES):
        size, last = len(piece), piece
        while not last.endswith(b"\n") and (last := file.readline(WHOLE_FILE_LIMIT)):
            size += len(last)
        yield piece.removesuffix(b"\n"), size - last.endswith(b"\n")


def _decode(piece: bytes, *, is_whole: bool) -> tuple[str, bool]:
    """The text of *piece*, and whether it is valid; a character at the end of a part may be cut in two."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(piece, final=is_whole), True
    except UnicodeDecodeError:
        return piece.decode("utf-8", "replace"), False


def _cut(line: str, size: int) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    return f"{line[:LINE_LIMIT]} [line cut after {LINE_LIMIT:,} characters; it has {size:,} bytes]"


def _too_much(wanted: ReadInput, *, fitting: int) -> ToolFailed:
    return ToolFailed(
        f"{wanted.file_path} from line {wanted.offset:,} on is over {TOKEN_LIMIT:,} tokens. {fitting:,} lines fit: "
        f"ask for offset={wanted.offset} and limit={fitting}, or search for the part you need."
    )
