"""The SearchTranscript tool: an agent searches its own transcript (file with its whole conversation)."""

import json
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.search.transcript_worker import SHOWN, TranscriptSearchRequest, TranscriptSearchResult, Who
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.worker_process import run_worker

MAX_TEXTS = 50


@attrs.frozen(kw_only=True)
class SearchTranscriptInput:
    """Arguments of a call of the SearchTranscript tool: a pattern to search for, or a turn to show."""

    pattern: Annotated[str | None, "The regular expression, in Python syntax. Not together with turn."] = None
    turn: Annotated[int | None, "Show all texts of this turn instead; a result line of a search gives its number."] = (
        None
    )
    who: Annotated[Who, "Whose texts: the user's, your own, your calls, their results, mail, earlier summaries."] = (
        "anyone"
    )
    before_turn: Annotated[int | None, "Search only turns before this one, to continue a long list."] = None
    ignore_case: Annotated[bool, "Ignore upper and lower case."] = False
    limit: Annotated[int, f"How many texts to show, newest first; up to {MAX_TEXTS}."] = 10


@attrs.frozen(kw_only=True)
class SearchTranscript(
    BuiltInTool,
    name="SearchTranscript",
    input_type=SearchTranscriptInput,
    access="read",
    is_clearable=True,
    result_cap=20_000,
):
    """Tool with which an agent searches its transcript (whole conversation), also texts removed from its context."""

    path: Path
    """Path of the transcript file of the agent that has this tool; its other tools need a permission to read it."""
    time_limit: float = 30.0
    """Seconds after which a search is stopped, because some regular expressions take exponential time."""

    async def run(self, arguments: SearchTranscriptInput, _workspace: Workspace) -> ToolResult:
        """Return a line for each of the newest matches, or one turn's texts. Cancellation kills the worker process."""
        if (arguments.pattern is None) == (arguments.turn is None):
            raise ToolFailed("Give either pattern, to search, or turn, to show a whole turn, but not both.")
        if not 1 <= arguments.limit <= MAX_TEXTS:
            raise ToolFailed(f"limit is {arguments.limit}; give a number from 1 to {MAX_TEXTS}")
        request = TranscriptSearchRequest(path=str(self.path), own=self.name, **attrs.asdict(arguments))
        with trio.move_on_after(self.time_limit):
            output = await run_worker("search/transcript_worker.py", json.dumps(request._asdict()).encode())
            found = TranscriptSearchResult(**json.loads(output))
            if found.error is not None:
                raise ToolFailed(f"{arguments.pattern!r} is not a valid regular expression; correct it: {found.error}")
            return ToolResult(text=_matches(arguments, found) if arguments.turn is None else _turn(arguments, found))
        raise ToolFailed(f"The search was stopped after {self.time_limit:g} s. Use a simpler expression.")


def _matches(arguments: SearchTranscriptInput, found: TranscriptSearchResult) -> str:
    if not found.lines:
        return f"nothing matches {arguments.pattern!r} in {found.last} turns"
    more = found.total - len(found.lines)
    older = f", {more} older ones not shown: narrow the search, or use before_turn" if more else ""
    return "\n".join([*found.lines, f"[{found.total} in all{older}; turn=N shows a complete turn]"])


def _turn(arguments: SearchTranscriptInput, found: TranscriptSearchResult) -> str:
    if not found.lines:
        raise ToolFailed(f"Turn {arguments.turn} has no text of {arguments.who}. Use another turn up to {found.last}.")
    cut = f"[cut after {SHOWN:,} of {found.total:,} characters: search for what you need]"
    return "\n".join([*found.lines, *([cut] if found.total > SHOWN else [])])
