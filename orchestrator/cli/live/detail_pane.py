"""Details page of the board (live display of a session): all facts about one agent or one approval request."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from coterie.agents.permissions.plan_approval import HUMAN
from coterie.errors import ConfigInvalid
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.controller import Selection
from coterie.orchestrator.cli.live.rows import AgentRow, ApprovalRow
from coterie.orchestrator.cli.live.text_layout import cut
from coterie.orchestrator.cli.output import escape_invisible
from coterie.orchestrator.cli.views.event_text import usage_text
from coterie.session_directory import SessionDirectory

MARGIN = 12
"""Width in columns of the label in front of each fact, such as `model` or `turns`."""
_WRAPPING = Console(width=80)
"""Console object that rich requires as an argument to wrap text; nothing is printed on it."""


def detail_lines(session: SessionDirectory, board: SessionBoard, chosen: Selection, width: int) -> list[Text]:
    """Return all facts about *chosen*, an agent or an approval, as lines. Reads the approval's file, which blocks."""
    if chosen.sort == "agent":
        return _agent(board.agents[chosen.name], width)
    words = _approval(board.approvals[chosen.name], session)
    return [line for text in words for line in _wrap(text, width)]


def _agent(row: AgentRow, width: int) -> list[Text]:
    state = "asks" if row.state_text == "asks" else f"is {row.state}"
    head = [f"{row.name}, start {row.incarnation}", f"{state}{f': {row.what}' if row.what else ''}", ""]
    facts = {
        "started by": row.parent or "the user",
        "kind": row.kind,
        "model": row.model,
        "process": str(row.pid or ""),
        "turns": str(row.turns),
        "progress": row.progress,
        "calls": ", ".join(call for _, call in row.calls),
        "used": usage_text(row.spending.usage, row.spending.cost),
        "last text": row.said,
    }
    lines = [line for text in head for line in _wrap(text, width)]
    for name, value in facts.items():
        if value:
            first, *rest = _wrap(value, width - MARGIN)
            lines += [
                Text(f"{name:<{MARGIN}}").append_text(first),
                *(Text(" " * MARGIN).append_text(more) for more in rest),
            ]
    return [cut(line, width) for line in lines]


def _approval(row: ApprovalRow, session: SessionDirectory) -> Iterator[str]:
    decider = "you decide" if row.by == HUMAN else f"decided by the {row.by}; you may decide too"
    yield f"{row.what} of {row.name} ({row.id}): {decider}"
    yield ""
    try:
        kept = ApprovalStore.of(session, ApprovalKey.find(session.id)).load()
        found = next((each for each in kept if each.path.stem == row.id), None)
    except (ConfigInvalid, OSError) as exc:
        yield escape_invisible(f"the details of this request cannot be read: {exc}")
        return
    if found is None or found.approval is None:
        yield row.subject
        return
    if found.doubt is not None:
        yield f"do not trust this request: {found.doubt}; reject it"
    # Escaped in full, because the user approves everything that is in it.
    yield from escape_invisible(_claim(found.approval)).split("\n")


def _claim(approval: Approval) -> str:
    claim, question = approval.claim, approval.claim.question
    if question is None:
        files = "".join(f"\n  {name}" for name in claim.files)
        return claim.plan + (f"\n\nfiles it would change:{files}" if files else "")
    arguments = "".join(f"\n\n{name}:\n{text}" for name, text in question.details.items())
    return f"{question.tool} {question.subject}\n{question.reason}{arguments}"


def _wrap(text: str, width: int) -> list[Text]:
    return list(Text(text).wrap(_WRAPPING, max(width, 1), overflow="fold")) or [Text("")]
