"""The Glob tool: lists the files whose paths match a pattern such as `**/*.py`, last modified first."""

import contextlib
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.files.directory_walk import WalkResult, display_path, list_files, parse_pattern
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.glob_pattern import GlobPattern

SHOWN = 100
TIME_LIMIT = 30.0


@attrs.frozen(kw_only=True)
class GlobInput:
    """Arguments of a call of the Glob tool, which lists files whose paths match a pattern."""

    pattern: Annotated[str, "The pattern, for example **/*.py or src/*.{ts,tsx}."]
    path: Annotated[str | None, "The directory to search; the project directory if omitted."] = None


class Glob(BuiltInTool, name="Glob", input_type=GlobInput, access="read", is_clearable=True):
    """Tool with which the model lists the files whose paths match a pattern such as `**/*.py`."""

    def paths_affected(self, arguments: GlobInput, workspace: Workspace) -> list[Path]:
        """Return the absolute path of the searched directory, for the permission check; no file outside is listed."""
        return [workspace.locate(arguments.path or ".")]

    async def run(self, arguments: GlobInput, workspace: Workspace) -> ToolResult:
        """Return up to SHOWN matching paths, last modified first. After cancellation, a thread may continue reading."""
        wildcard = parse_pattern(arguments.pattern)
        directory = workspace.locate(arguments.path or ".")
        with trio.move_on_after(TIME_LIMIT):
            listing = await list_files(directory)
            found = await trio.to_thread.run_sync(_newest_sync, directory, listing, wildcard, abandon_on_cancel=True)
            lines = [display_path(path, workspace.root) for path in found[:SHOWN]]
            if not found:
                lines.append(f"no file matches {arguments.pattern!r} ({len(listing.names):,} files checked)")
            if len(found) > SHOWN:
                more = len(found) - SHOWN
                lines.append(f"[{more:,} more files match; use a narrower pattern, or give a subdirectory as path]")
            return ToolResult(text="\n".join(filter(None, [*lines, listing.note])))
        raise ToolFailed(f"Glob was stopped after {TIME_LIMIT:g} s. Search fewer files: give a subdirectory as path.")


def _newest_sync(directory: Path, listing: WalkResult, wildcard: GlobPattern) -> list[Path]:
    """Return the files of *listing* that match *wildcard*, last modified first; equal times keep the listing order."""
    dated: list[tuple[int, Path]] = []
    for name in filter(wildcard.matches, listing.names):
        path = directory / name
        with contextlib.suppress(OSError):  # deleted since it was listed
            dated.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, key=lambda pair: -pair[0])]
