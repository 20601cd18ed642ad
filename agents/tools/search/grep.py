"""The Grep tool: searches files, line by line, for a regular expression in Python syntax."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.directory_walk import WalkResult, display_path, list_files, parse_pattern
from coterie.agents.tools.search.grep_worker import LARGEST, GrepRequest, GrepResult, Mode
from coterie.agents.tools.search.ripgrep import byte_pattern, files_without, installed_ripgrep
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.worker_process import run_worker
from coterie.agents.tools.workspace.working_directory import printable_name

MAX_LINES = 10_000
MAX_CONTEXT = 100
FIRST_BATCH = 200
COMMON = 50
"""If the first FIRST_BATCH files have more result lines than this, ripgrep is not run: it would exclude few files."""


@attrs.frozen(kw_only=True)
class GrepInput:
    """Arguments of a call of the Grep tool, which searches files for a regular expression."""

    pattern: Annotated[str, "The regular expression, in Python syntax."]
    path: Annotated[str | None, "The file or directory to search; the project directory if omitted."] = None
    glob: Annotated[str | None, "Pattern of the files to search, for example *.py or src/**/*.{ts,tsx}."] = None
    output_mode: Annotated[
        Mode, "Show the files that have a match, the matching lines, or the number of matches in each file."
    ] = "files_with_matches"
    ignore_case: Annotated[bool, "Ignore upper and lower case."] = False
    context: Annotated[int, "How many lines to show before and after each match, in content mode."] = 0
    head_limit: Annotated[int, "How many lines of output to show."] = 250


@attrs.frozen(kw_only=True)
class Grep(BuiltInTool, name="Grep", input_type=GrepInput, access="read", is_clearable=True, result_cap=20_000):
    """Tool with which the model searches the contents of files for a regular expression."""

    time_limit: float = 30.0
    """Seconds after which a search is stopped, because some regular expressions take exponential time."""
    ripgrep: str | None = attrs.field(factory=installed_ripgrep)
    """Path of the program ripgrep, which finds files without a match, to be skipped; None to search all in Python."""

    def paths_affected(self, arguments: GrepInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the searched file or directory, for the permission check."""
        return [workspace.locate(arguments.path or ".")]

    async def run(self, arguments: GrepInput, workspace: Workspace) -> ToolResult:
        """Return matching files, lines or counts, as `output_mode` says, in the order of the paths.

        Raises `ToolFailed` after `time_limit`. Cancellation kills the worker process; a thread may still list files.
        """
        if not 0 <= arguments.context <= MAX_CONTEXT:
            raise ToolFailed(f"context is {arguments.context}; give a number of lines from 0 to {MAX_CONTEXT}")
        if not 1 <= arguments.head_limit <= MAX_LINES:
            raise ToolFailed(f"head_limit is {arguments.head_limit}; give a number of lines from 1 to {MAX_LINES:,}")
        with trio.move_on_after(self.time_limit):
            listing, files = await _files(arguments, workspace)
            found = await _search(arguments, files, self.ripgrep)
            return ToolResult(text="\n".join(filter(None, [*found.lines, *_notes(arguments, found), listing.note])))
        raise ToolFailed(
            f"The search was stopped after {self.time_limit:g} s. Search fewer files, or use a simpler expression: "
            "nested repetition, as in (a+)+, can take exponential time."
        )


async def _files(arguments: GrepInput, workspace: Workspace) -> tuple[WalkResult, list[tuple[str, str]]]:
    """Return the listing of the searched directory, and path and display name of each file to search."""
    path = workspace.locate(arguments.path or ".")
    # A pattern without a directory applies to file names in all directories.
    pattern = arguments.glob if arguments.glob is None or "/" in arguments.glob else f"**/{arguments.glob}"
    wildcard = None if pattern is None else parse_pattern(pattern)
    if await trio.to_thread.run_sync(_is_file_sync, path, arguments.path or "."):
        return WalkResult(names=(path.name,), is_cut=False), [(str(path), display_path(path, workspace.root))]
    listing = await list_files(path)
    names = list(listing.names)
    if wildcard is not None:  # In a thread, because matching many names is slow.
        names = await trio.to_thread.run_sync(list, filter(wildcard.matches, names), abandon_on_cancel=True)
    directory = display_path(path, workspace.root)
    prefix = "" if directory == "." else f"{directory.rstrip('/')}/"
    return listing, [(f"{path}/{name}", prefix + printable_name(name)) for name in names]


def _is_file_sync(path: Path, name: str) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        raise ToolFailed(f"{name} cannot be searched: {exc.strerror}. Give another path.") from exc
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ToolFailed(f"{name} cannot be searched: it is neither a regular file nor a directory. Give another path.")
    return stat.S_ISREG(mode)


async def _search(arguments: GrepInput, files: list[tuple[str, str]], ripgrep: str | None) -> GrepResult:
    """Search *files*, pairs of path and display name, in Python; skip files in which ripgrep finds no match."""
    pattern = byte_pattern(arguments.pattern, ignore_case=arguments.ignore_case)
    if ripgrep is None or pattern is None or len(files) <= FIRST_BATCH:
        return await _search_in_worker(arguments, files)
    found, rest = await _search_in_worker(arguments, files[:FIRST_BATCH]), files[FIRST_BATCH:]
    if found.is_cut:
        return found
    is_common = len(found.lines) > COMMON
    excluded = frozenset() if is_common else await files_without(ripgrep, pattern, [path for path, _ in rest])
    return found.joined(await _search_in_worker(arguments, rest, excluded=excluded, shown=len(found.lines)))


async def _search_in_worker(
    arguments: GrepInput, files: list[tuple[str, str]], *, excluded: frozenset[str] = frozenset(), shown: int = 0
) -> GrepResult:
    """Search *files* but not *excluded* in a worker process; earlier files used up *shown* lines of the line limit."""
    request = GrepRequest(
        pattern=arguments.pattern,
        ignore_case=arguments.ignore_case,
        mode=arguments.output_mode,
        context=arguments.context,
        limit=arguments.head_limit - shown,
        files=files,
        excluded=[index for index, (path, _) in enumerate(files) if path in excluded],
        is_continued=shown > 0,
    )
    found = GrepResult(**json.loads(await run_worker("search/grep_worker.py", json.dumps(request._asdict()).encode())))
    if found.error is not None:
        raise ToolFailed(f"{arguments.pattern!r} is not a valid regular expression; correct it: {found.error}")
    return found


def _notes(arguments: GrepInput, found: GrepResult) -> Iterator[str]:
    if not found.lines:
        binary = f", {found.binary:,} binary files skipped" if found.binary else ""
        yield f"no line matches {arguments.pattern!r} ({found.searched:,} files searched{binary})"
    if found.is_cut:
        yield f"[cut after {arguments.head_limit:,} lines: narrow the search, or use a larger head_limit]"
    if found.large:
        yield f"[{found.large:,} files over {LARGEST // 1024**2} MB were not searched]"
    if found.unreadable:
        yield f"[{found.unreadable:,} files could not be read]"
