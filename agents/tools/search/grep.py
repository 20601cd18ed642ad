"""The Grep tool: lines or files that match a regular expression."""

import json
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.directory_walk import WalkResult, display_path, list_files, parse_pattern
from coterie.agents.tools.schema import described
from coterie.agents.tools.search.byte_pattern import byte_pattern
from coterie.agents.tools.search.grep_worker import LARGEST, GrepRequest, GrepResult, Mode
from coterie.agents.tools.search.ripgrep import files_without, installed_ripgrep
from coterie.agents.tools.tool import Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.worker_process import run_worker
from coterie.agents.tools.workspace.working_directory import printable_name
from coterie.glob_pattern import GlobPattern

TIME_LIMIT = 30.0
MOST_LINES = 10_000
MOST_CONTEXT = 100
BEGINNING = 200
COMMON = 50
"""The files that are searched at first, and how many lines in them tell that few of the others can be passed over."""
WORKER = Path(__file__).with_name("grep_worker.py")


@attrs.frozen(kw_only=True)
class GrepInput:
    """What to search for, where, and what to show of it."""

    pattern: str = attrs.field(metadata=described("The regular expression, as Python writes them."))
    path: str | None = attrs.field(
        default=None, metadata=described("The file or directory to search; without it the project directory.")
    )
    glob: str | None = attrs.field(
        default=None, metadata=described("Which files of a directory to search, for example *.py or src/**/*.{ts,tsx}.")
    )
    output_mode: Mode = attrs.field(
        default="files_with_matches",
        metadata=described("Show the files that have a match, the matching lines, or how many there are in each file."),
    )
    ignore_case: bool = attrs.field(
        default=False, metadata=described("Whether small and capital letters are the same.")
    )
    context: int = attrs.field(
        default=0, metadata=described("How many lines to show before and after each match, in content mode.")
    )
    head_limit: int = attrs.field(default=250, metadata=described("How many lines of output to show."))


@attrs.frozen(kw_only=True)
class Grep:
    """Searches the contents of files."""

    name: ClassVar = "Grep"
    description: ClassVar = tool_description("grep")
    input_type: ClassVar = GrepInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = 20_000

    time_limit: float = TIME_LIMIT
    """Seconds after which a search is given up; some expressions would take years."""
    ripgrep: str | None = attrs.field(factory=installed_ripgrep)
    """The program that says which files need no search; None if all are searched."""

    def paths_affected(self, arguments: GrepInput, workspace: Workspace) -> list[Path]:
        """The file or directory that is searched; nothing outside it is read."""
        return [workspace.locate(arguments.path or ".")]

    async def run(self, arguments: GrepInput, workspace: Workspace) -> ToolResult:
        """What was found, in the order of the paths.

        A cancelled call ends the processes that search; it may leave a thread that lists files, and changes nothing.
        """
        _check_numbers(arguments)
        with trio.move_on_after(self.time_limit):
            listing, files = await _files(arguments, workspace)
            finding = await _search(arguments, files, self.ripgrep)
            return ToolResult(text="\n".join([*finding.lines, *_notes(arguments, finding, listing)]))
        raise ToolFailed(
            f"The search was not done after {self.time_limit:g} s, and was stopped. Search fewer files, or use a "
            "simpler expression: repetition inside repetition, as in (a+)+, can take forever."
        )


def _check_numbers(wanted: GrepInput) -> None:
    if not 0 <= wanted.context <= MOST_CONTEXT:
        raise ToolFailed(f"context is {wanted.context}, but must be from 0 to {MOST_CONTEXT} lines")
    if not 1 <= wanted.head_limit <= MOST_LINES:
        raise ToolFailed(f"head_limit is {wanted.head_limit}, but must be from 1 to {MOST_LINES:,} lines")


async def _files(wanted: GrepInput, workspace: Workspace) -> tuple[WalkResult, list[tuple[str, str]]]:
    """What the walk found, and the files to search with the names to call them by."""
    path = workspace.locate(wanted.path or ".")
    wildcard = None if wanted.glob is None else parse_pattern(_anywhere(wanted.glob))
    if await trio.to_thread.run_sync(_is_file_sync, path, wanted.path or "."):
        return WalkResult(names=(path.name,), is_cut=False), [(str(path), display_path(path, workspace.root))]
    listing = await list_files(path)
    # Many names and many alternatives take their time.
    names = await trio.to_thread.run_sync(_chosen_sync, listing.names, wildcard, abandon_on_cancel=True)
    directory = display_path(path, workspace.root)
    prefix = "" if directory == "." else f"{directory.rstrip('/')}/"
    return listing, [(f"{path}/{name}", prefix + printable_name(name)) for name in names]


def _chosen_sync(names: Iterable[str], wildcard: GlobPattern | None) -> list[str]:
    return [name for name in names if wildcard is None or wildcard.matches(name)]


def _anywhere(pattern: str) -> str:
    """A pattern without a directory is for the file's name alone, as in the filters of other search programs."""
    return pattern if "/" in pattern else f"**/{pattern}"


def _is_file_sync(path: Path, name: str) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        raise ToolFailed(f"{name} cannot be searched: {exc.strerror}") from exc
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ToolFailed(f"{name} cannot be searched: it is neither a regular file nor a directory")
    return stat.S_ISREG(mode)


async def _search(wanted: GrepInput, files: list[tuple[str, str]], ripgrep: str | None) -> GrepResult:
    """What Python finds in the files; whether it need not look at some of them makes no difference."""
    pattern = byte_pattern(wanted.pattern, ignore_case=wanted.ignore_case)
    if ripgrep is None or pattern is None or len(files) <= BEGINNING:
        return await _work(wanted, files)
    finding, rest = await _work(wanted, files[:BEGINNING]), files[BEGINNING:]
    if finding.is_cut:
        return finding
    is_common = len(finding.lines) > COMMON
    hopeless = frozenset() if is_common else await files_without(ripgrep, pattern, [path for path, _ in rest])
    return finding.joined(await _work(wanted, rest, hopeless=hopeless, shown=len(finding.lines)))


async def _work(
    wanted: GrepInput, files: list[tuple[str, str]], *, hopeless: frozenset[str] = frozenset(), shown: int = 0
) -> GrepResult:
    """What a worker finds in the files, when *shown* lines were found before."""
    order = GrepRequest(
        pattern=wanted.pattern,
        ignore_case=wanted.ignore_case,
        mode=wanted.output_mode,
        context=wanted.context,
        limit=wanted.head_limit - shown,
        files=files,
        hopeless=[place for place, (path, _) in enumerate(files) if path in hopeless],
        is_continued=shown > 0,
    )
    finding = GrepResult(**json.loads(await run_worker(WORKER, json.dumps(order._asdict()).encode())))
    if finding.error is not None:
        raise ToolFailed(f"{wanted.pattern!r} is not a regular expression that Python understands: {finding.error}")
    return finding


def _notes(wanted: GrepInput, finding: GrepResult, listing: WalkResult) -> list[str]:
    notes = []
    if not finding.lines:
        binary = f", {finding.binary:,} binary files skipped" if finding.binary else ""
        notes.append(f"no line matches {wanted.pattern!r} ({finding.searched:,} files searched{binary})")
    if finding.is_cut:
        notes.append(f"[cut after {wanted.head_limit:,} lines: narrow the search, or ask for a larger head_limit]")
    if finding.large:
        notes.append(f"[{finding.large:,} files over {LARGEST // 1024**2} MB were not searched]")
    if finding.unreadable:
        notes.append(f"[{finding.unreadable:,} files could not be read]")
    if listing.note:
        notes.append(listing.note)
    return notes
