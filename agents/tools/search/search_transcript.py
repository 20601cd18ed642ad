"""The SearchTranscript tool."""

import json
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.search.transcript_worker import SHOWN, TranscriptSearchRequest, TranscriptSearchResult, Who
from coterie.agents.tools.tool import Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.worker_process import run_worker

TIME_LIMIT = 30.0
MOST = 50
WORKER = Path(__file__).with_name("transcript_worker.py")


@attrs.frozen(kw_only=True)
class SearchTranscriptInput:
    """What to search for, or which turn to show."""

    pattern: str | None = attrs.field(
        default=None, metadata=described("The regular expression, as Python writes them. Not together with turn.")
    )
    turn: int | None = attrs.field(
        default=None,
        metadata=described("Show the texts of this turn instead, as a line of an earlier search names it."),
    )
    who: Who = attrs.field(
        default="anyone",
        metadata=described("Whose texts: the user's, your own, your calls, their results, mail, earlier summaries."),
    )
    before_turn: int | None = attrs.field(
        default=None, metadata=described("Search only what is older than this turn, to go on behind a long list.")
    )
    ignore_case: bool = attrs.field(
        default=False, metadata=described("Whether small and capital letters are the same.")
    )
    limit: int = attrs.field(default=10, metadata=described(f"How many texts to show, the newest first; up to {MOST}."))


@attrs.frozen(kw_only=True)
class SearchTranscript:
    """Searches the transcript of one agent."""

    path: Path
    """Of the transcript, which other tools may not touch."""
    time_limit: float = TIME_LIMIT
    """Seconds after which a search is given up; some expressions would take years."""

    name: ClassVar = "SearchTranscript"
    description: ClassVar = tool_description("search_transcript")
    input_type: ClassVar = SearchTranscriptInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = 20_000

    def paths_affected(self, _arguments: SearchTranscriptInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file of anybody else's."""
        return ()

    async def run(self, arguments: SearchTranscriptInput, _workspace: Workspace) -> ToolResult:
        """A line for each text that was found, or the texts of one turn. A cancelled call ends the process."""
        _check(arguments)
        order = TranscriptSearchRequest(path=str(self.path), own=self.name, **attrs.asdict(arguments))
        with trio.move_on_after(self.time_limit):
            finding = TranscriptSearchResult(
                **json.loads(await run_worker(WORKER, json.dumps(order._asdict()).encode()))
            )
            if finding.error is not None:
                raise ToolFailed(f"{arguments.pattern!r} is not a regular expression: {finding.error}")
            return ToolResult(text=_hits(arguments, finding) if arguments.turn is None else _turn(arguments, finding))
        raise ToolFailed(
            f"The search was not done after {self.time_limit:g} s, and was stopped. Use a simpler expression."
        )


def _check(wanted: SearchTranscriptInput) -> None:
    if (wanted.pattern is None) == (wanted.turn is None):
        raise ToolFailed("Give either a pattern to search for, or the turn to show")
    if not 1 <= wanted.limit <= MOST:
        raise ToolFailed(f"limit is {wanted.limit}, but must be from 1 to {MOST}")


def _hits(wanted: SearchTranscriptInput, finding: TranscriptSearchResult) -> str:
    if not finding.lines:
        return f"nothing matches {wanted.pattern!r} in {finding.last} turns"
    more = finding.total - len(finding.lines)
    older = f", {more} older ones not shown: narrow the search, or use before_turn" if more else ""
    return "\n".join([*finding.lines, f"[{finding.total} in all{older}; turn=N shows one turn whole]"])


def _turn(wanted: SearchTranscriptInput, finding: TranscriptSearchResult) -> str:
    if not finding.lines:
        raise ToolFailed(f"There is nothing of turn {wanted.turn}: the last one is {finding.last}")
    cut = f"[cut after {SHOWN:,} of {finding.total:,} characters: search for what you need]"
    return "\n".join([*finding.lines, *([cut] if finding.total > SHOWN else [])])
