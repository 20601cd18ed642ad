"""The Read tool: shows the model a text file, Jupyter notebook, PDF or image, or a part of it."""

import codecs
import io
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

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
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import LARGEST, missing_file_hint

WHOLE_FILE_LIMIT = 256 * 1024
TOKEN_LIMIT = 25_000
LINE_LIMIT = 2_000
"""Maximum characters shown of one line of a text file."""
SNIFFED = 8 * 1024
"""Number of bytes at the beginning of a file in which a NUL byte shows that the file is binary."""
LINE_BYTES = 4 * LINE_LIMIT + 1
"""Maximum bytes read of one line to show it: enough for LINE_LIMIT characters, which have at most four bytes each."""

NOT_UTF8 = "[not valid UTF-8: invalid bytes are shown as \N{REPLACEMENT CHARACTER}]"
EMPTY = "[the file is empty]"


@attrs.frozen(kw_only=True)
class ReadInput:
    """Arguments of a call of the Read tool, which shows a file or a part of it."""

    file_path: Annotated[str, "The file, absolute or relative to the project directory."]
    offset: Annotated[int, "The number of the first line to show; in a notebook, of the first cell."] = 1
    limit: Annotated[int | None, "How many lines, or cells, to show; all if omitted."] = None
    pages: Annotated[str | None, "The pages of a PDF to show: 3, or 1-5; at most 20, required for over 10."] = None


class Read(BuiltInTool, name="Read", input_type=ReadInput, access="read", is_clearable=True, result_cap=None):
    """Tool with which the model views a text file, notebook, PDF or image, or a part of it."""

    def paths_affected(self, arguments: ReadInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the file to show, for the permission check."""
        return [workspace.locate(arguments.file_path)]

    async def run(self, arguments: ReadInput, workspace: Workspace) -> ToolResult:
        """Return the requested part; record a file up to LARGEST bytes as read. If cancelled, a thread may read on."""
        path = workspace.locate(arguments.file_path)
        result, content = await trio.to_thread.run_sync(_read_sync, arguments, path, abandon_on_cancel=True)
        if result is None:
            result = await show_pdf(arguments.file_path, path, arguments.pages)
        # Not in the thread, because a cancelled call has shown nothing.
        if content is not None:
            workspace.seen.record(path, content)
        return result


def _read_sync(arguments: ReadInput, path: Path) -> tuple[ToolResult | None, bytes | None]:
    """Return the result for the model and the whole content of the file. Raises `ToolFailed`.

    The result is None for a PDF, which the caller shows. The content is None for a file over LARGEST bytes.
    """
    if arguments.offset < 1:
        raise ToolFailed(f"offset is {arguments.offset}, but lines are counted from 1. Give a number of at least 1.")
    if arguments.limit is not None and arguments.limit < 1:
        raise ToolFailed(f"limit is {arguments.limit}, but must be at least 1. Omit it to show all lines.")
    try:
        size = _checked_size(arguments, path)
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
            if content.startswith(PDF):
                return None, content if len(content) <= LARGEST else None
            if arguments.pages is not None:
                raise ToolFailed(f"{arguments.file_path} is not a PDF, so it has no pages. Omit pages.")
            if b"\0" in content[:SNIFFED]:
                # Recorded as read too, so that Write refuses it because it is binary, not because it is unread.
                return _binary(arguments, content), content
            if path.suffix == NOTEBOOK and len(content) <= LARGEST:
                return _notebook(arguments, content), content
            _check_whole(arguments, size)
            if len(content) <= LARGEST:
                return ToolResult(text=_numbered(arguments, io.BytesIO(content))), content
            file.seek(0)
            return ToolResult(text=_numbered(arguments, file)), None
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ToolFailed(f"{arguments.file_path} does not exist{missing_file_hint(path)}") from exc
    except OSError as exc:
        raise ToolFailed(f"{arguments.file_path} cannot be read: {exc.strerror}. Check its permissions.") from exc


def _checked_size(arguments: ReadInput, path: Path) -> int:
    """Return the size of the file in bytes. Raises `ToolFailed` unless it is a regular file; a pipe would block."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"{arguments.file_path} is a directory. List it with Glob or ls.")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"{arguments.file_path} is not a regular file, but a pipe or device. Read another file.")
    return status.st_size


def _binary(arguments: ReadInput, content: bytes) -> ToolResult:
    name, media_type = arguments.file_path, media_type_of(content)
    if media_type is None:
        raise ToolFailed(f"{name} is a binary file with NUL bytes. Read shows text, notebooks, images and PDFs.")
    return show_image(name, media_type, content)


def _notebook(arguments: ReadInput, content: bytes) -> ToolResult:
    """Return the cells of the notebook *content*; its lines if it is invalid, so that the model can repair it."""
    try:
        notebook = Notebook.read(content.decode())
    except ValueError as exc:
        _check_whole(arguments, len(content))
        reason = f"[not a valid notebook: {exc}; its lines follow]"
        return ToolResult(text=f"{reason}\n{_numbered(arguments, io.BytesIO(content))}")
    name = arguments.file_path
    return show_notebook(name, notebook, first=arguments.offset, count=arguments.limit, tokens=TOKEN_LIMIT)


def _check_whole(arguments: ReadInput, size: int) -> None:
    if size > WHOLE_FILE_LIMIT and arguments.offset == 1 and arguments.limit is None:
        raise ToolFailed(
            f"{arguments.file_path} has {size:,} bytes; over {WHOLE_FILE_LIMIT // 1024} KB, give a range (offset and "
            "limit), or search for the part you need."
        )


def _numbered(arguments: ReadInput, file: BinaryIO) -> str:
    shown: list[str] = []
    tokens = seen = 0
    is_clean = True
    for number, (piece, size) in enumerate(_lines(file), 1):
        seen = number
        if number < arguments.offset:
            continue
        line, is_line_clean = _decode(piece, is_whole=len(piece) == size)
        is_clean = is_clean and is_line_clean
        if len(line) > LINE_LIMIT:
            line = f"{line[:LINE_LIMIT]} [line cut after {LINE_LIMIT:,} characters; it has {size:,} bytes]"
        shown.append(f"{number:6}\t{line}")
        # One more for the line end. Counted line by line, so that the suggested range fits.
        tokens += estimate_text(shown[-1]) + 1
        if tokens > TOKEN_LIMIT:
            fitting = len(shown) - 1
            raise ToolFailed(
                f"{arguments.file_path} from line {arguments.offset:,} on has over {TOKEN_LIMIT:,} tokens. {fitting:,} "
                f"lines fit: use offset={arguments.offset} and limit={fitting}, or search for the part you need."
            )
        if len(shown) == arguments.limit:
            break
    if not shown and arguments.offset > 1:
        raise ToolFailed(f"{arguments.file_path} has only {seen:,} lines, so reduce offset={arguments.offset}.")
    return "\n".join(([] if is_clean else [NOT_UTF8]) + (shown or [EMPTY]))


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the first LINE_BYTES bytes and the full size of each line, both without LF, in bounded memory."""
    while piece := file.readline(LINE_BYTES):
        size, last = len(piece), piece
        while not last.endswith(b"\n") and (last := file.readline(WHOLE_FILE_LIMIT)):
            size += len(last)
        yield piece.removesuffix(b"\n"), size - last.endswith(b"\n")


def _decode(piece: bytes, *, is_whole: bool) -> tuple[str, bool]:
    """Return *piece* as text, and True if it is valid UTF-8; unless *is_whole*, drop an incomplete last character."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(piece, final=is_whole), True
    except UnicodeDecodeError:
        return piece.decode("utf-8", "replace"), False
