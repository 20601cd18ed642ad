"""The Glob tool: finds files by a pattern of their names, newest first."""

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
    """Arguments of the Glob tool."""

    pattern: Annotated[str, "The pattern, for example **/*.py or src/*.{ts,tsx}."]
    path: Annotated[str | None, "The directory to search; the project directory if omitted."] = None


class Glob(BuiltInTool, name="Glob", input_type=GlobInput, access="read", is_clearable=True):
    """Tool that finds files by their names."""

    def paths_affected(self, arguments: GlobInput, workspace: Workspace) -> list[Path]:
        """Return the searched directory; files outside of it are never found."""
        return [workspace.locate(arguments.path or ".")]

    async def run(self, arguments: GlobInput, workspace: Workspace) -> ToolResult:
        """Return the matching paths. After cancellation a thread may continue reading."""
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
                lines.append(f"[{more:,} more match: use a narrower pattern, or give a deeper directory]")
            return ToolResult(text="\n".join(filter(None, [*lines, listing.note])))
        raise ToolFailed(f"Glob was stopped after {TIME_LIMIT:g} s: give a deeper directory as path")


def _newest_sync(directory: Path, listing: WalkResult, wildcard: GlobPattern) -> list[Path]:
    """Return the matching files, newest first; files of the same age in the order of the listing."""
    dated: list[tuple[int, Path]] = []
    for name in filter(wildcard.matches, listing.names):
        path = directory / name
        with contextlib.suppress(OSError):  # deleted since it was listed
            dated.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, key=lambda pair: -pair[0])]
