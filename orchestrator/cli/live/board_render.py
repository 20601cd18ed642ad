"""Rendering of the board (live display of a session) as lines of text that fit the terminal."""

from collections.abc import Sequence
from decimal import Decimal

import attrs
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coterie.agents.permissions.plan_approval import HUMAN
from coterie.orchestrator.cli.live.agent_table import AgentTable
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.canvas import open_unwrapped
from coterie.orchestrator.cli.live.controller import Selection
from coterie.orchestrator.cli.live.rows import AgentRow, ApprovalRow, MailRow, NewsRow, clean_text
from coterie.orchestrator.cli.live.text_layout import Section, age, cell, cut, dollars, justify, visible
from coterie.orchestrator.cli.output import format_clock

MINIMUM_LINES = (3, 4, 2, 2)
"""Minimum lines of the sections approvals, agents, mail and events, which are reserved in this order."""
FIRST_SHARE = 2
"""Number of sections, approvals and agents, that get all wanted lines before mail and events share the other lines."""


def allocate_lines(wanted: Sequence[int], room: int) -> list[int]:
    """Divide *room* lines among approvals, agents, mail and events, which need *wanted*; return the lines of each.

    A section gets no line or at least two. Approvals get at most a third (or three lines), so that agents stay visible.
    """
    wanted = [min(wanted[0], max(MINIMUM_LINES[0], room // 3)), *wanted[1:]]
    given = [0] * len(wanted)
    for part, least in enumerate(MINIMUM_LINES):
        lines = min(wanted[part], least, room)
        if lines >= min(2, wanted[part]):
            given[part], room = lines, room - lines
    for part in range(FIRST_SHARE):
        if given[part]:
            lines = min(wanted[part] - given[part], room)
            given[part], room = given[part] + lines, room - lines
    while room and (open_ := [part for part in range(FIRST_SHARE, len(wanted)) if 0 < given[part] < wanted[part]]):
        part = min(open_, key=lambda part: given[part])
        given[part], room = given[part] + 1, room - 1
    return given


NARROW = 50
"""Terminal width in columns below which the title leaves out the session id and the budget."""
ROOMY = 70
"""Minimum terminal width in columns for the bar of the budget and the number of agents in each state."""
BAR = 10
"""Width in columns of the bar that shows which share of the budget is spent."""
STATES = {"running": "green", "ended": "", "interrupted": "bold yellow"}
WAYS = {"stored": "->", "delivered": "=>", "dead": "-x"}
"""Arrow from sender to recipient in a line of mail, by delivery state; a dead letter is an undeliverable message."""

SAY_SO = ("message", "task_notification")
"""Message kinds that a line of mail does not name, because the name would add nothing to the message text."""


@attrs.frozen(kw_only=True)
class BoardPage:
    """Arguments for drawing a board besides its data: screen size, present time, selected line, last line."""

    width: int
    height: int
    now: float
    chosen: Selection | None = None
    only: str | None = None
    """Name of the agent that is shown, together with its descendants; None to show all agents."""
    foot: str = ""
    is_urgent: bool = False
    """True if the last line is highlighted, because it asks for input or shows a notice."""
    is_plain: bool = False
    """True for a terminal that can show only ASCII characters."""


def render_board(board: SessionBoard, page: BoardPage) -> list[Text]:
    """Return the screen content as at most `page.height` lines: title, task, the sections of *board*, last line."""
    head = [_title(board, page), _task(board, page)]
    foot = [cut(page.foot, page.width, "reverse" if page.is_urgent else "dim")] if page.foot else []
    room = page.height - len(head) - len(foot)
    if room < 0:
        return (foot + head)[: page.height]
    if not board.agents:
        wait = "starting the lead ..." if board.state == "running" else "no agent was started"
        return [*head, cut(f"    {wait}", page.width, "dim"), *[Text("")] * (room - 1), *foot][: page.height]
    sections = (_approvals(board, page), _agents(board, page), _mail(board, page), _news(board, page))
    lines = allocate_lines([section.wanted for section in sections], room)
    drawn = [line for section, count in zip(sections, lines, strict=True) for line in section.lines(count, page.width)]
    return [*head, *drawn, *[Text("")] * (room - len(drawn)), *foot]


def print_board(board: SessionBoard, console: Console, *, now: float, height: int, only: str | None = None) -> None:
    """Print agents, approvals, mail and events of *board*, or of *only* and descendants, in at most *height* lines."""
    page = BoardPage(width=console.width, height=height, now=now, only=only, is_plain=console.options.ascii_only)
    lines = render_board(board, page)
    while lines and not lines[-1].plain.strip():
        lines.pop()
    with open_unwrapped(console):
        for line in lines:
            console.print(visible(line), soft_wrap=True)


def _title(board: SessionBoard, page: BoardPage) -> Text:
    left = Text(f"{board.session}  " if page.width >= NARROW else "", "bold")
    left.append(board.state, STATES.get(board.state, ""))
    if board.reason:
        left.append(f", {board.reason}")
    if board.state == "running":
        left.append(f"  {age(page.now - board.started)}")
    return justify(left, _money(board, page), page.width)


def _money(board: SessionBoard, page: BoardPage) -> Text:
    spent = board.spending.cost
    if board.budget is None or page.width < NARROW:
        return Text(f"${dollars(spent)}")
    share = float(min(spent / board.budget, Decimal(1))) if board.budget else 1.0
    style = "red" if share > 0.9 else "yellow" if share > 0.7 else "green"
    percent = f" {100 * share:.0f} %"
    spent_of = Text(f"${dollars(spent)} of ${board.budget.normalize():f}")
    if page.width < ROOMY:
        return spent_of.append(percent, style)
    full = round(share * BAR)
    bar = Text("#" * full if page.is_plain else "━" * full, style)
    bar.append(("." if page.is_plain else "─") * (BAR - full), "dim")
    return spent_of.append(" ").append_text(bar).append(percent)


def _task(board: SessionBoard, page: BoardPage) -> Text:
    counts = ", ".join(f"{count} {state}" for state, count in board.states().most_common())
    right = Text(counts, "dim") if page.width >= ROOMY and len(board.agents) > 1 else Text("")
    left = Text("" if page.only is None else f"{clean_text(page.only)} only: ", "bold")
    return justify(left.append(board.task, "italic"), right, page.width)


def _approvals(board: SessionBoard, page: BoardPage) -> Section:
    found = board.open_approvals(page.only)
    chosen = [page.chosen == Selection("approval", each.id) for each in found]
    return Section(
        title=Text(f"APPROVALS  {len(found)} open", "magenta"),
        count=len(found),
        row=lambda at: _approval(found[at], page.now, is_chosen=chosen[at]),
        ranks=[0 if is_chosen else 1 for is_chosen in chosen],
    )


def _approval(approval: ApprovalRow, now: float, *, is_chosen: bool) -> Text:
    line = Text(f"{'> ' if is_chosen else '  '}? ", "bold magenta")
    line.append(approval.name, "bold")
    decider = "" if approval.by == HUMAN else f" for the {approval.by}"
    line.append(f"  {approval.what}{decider}  {age(now - approval.at)}  ", "dim")
    return line.append(approval.subject)


def _agents(board: SessionBoard, page: BoardPage) -> Section:
    tree = board.tree(page.only)
    table = AgentTable.fitting(tree, page.width, page.now, is_plain=page.is_plain)
    asking = board.agents_awaiting_approval()
    chosen = [page.chosen == Selection("agent", row.name) for _, row in tree]
    return Section(
        title=table.head(),
        count=len(tree),
        row=lambda at: table.line(*tree[at], is_chosen=chosen[at], is_asking=tree[at][1].name in asking),
        ranks=[_rank(row, is_chosen=chosen[at], is_asking=row.name in asking) for at, (_, row) in enumerate(tree)],
    )


def _rank(row: AgentRow, *, is_chosen: bool, is_asking: bool) -> int:
    """Return the priority of an agent's row if not all fit, 0 first: chosen, asking or stalled, busy, idle, ended."""
    if is_chosen:
        return 0
    if is_asking or row.state in ("stalled", "plan_pending"):
        return 1
    if row.has_ended:
        return 4
    return 3 if row.state == "idle" else 2


def _mail(board: SessionBoard, page: BoardPage) -> Section:
    names = _names(board, page)
    found = [each for each in board.letters if names is None or names & {each.sender, each.recipient}]
    more = board.letters_count - len(board.letters) if names is None else 0
    return Section(title=Text("MAIL", "cyan"), count=len(found), row=lambda at: _mail_line(found[at]), more=more)


def _mail_line(letter: MailRow) -> Text:
    line = Text(f"  {format_clock(letter.at)} ", "dim")
    line.append(f"{letter.sender} {WAYS[letter.way]} {letter.recipient}", "red" if letter.way == "dead" else "bold")
    kind = "" if letter.kind in SAY_SO else f"[{letter.kind.replace('_', ' ')}] "
    return line.append(f"  {kind}{letter.gist}")


def _news(board: SessionBoard, page: BoardPage) -> Section:
    names = _names(board, page)
    found = [each for each in board.news if names is None or each.agent in names]
    widest = min(max((cell_len(each.agent) for each in found), default=0), 16)
    more = board.news_count - len(board.news) if names is None else 0
    title = Text("EVENTS", "cyan")
    return Section(title=title, count=len(found), row=lambda at: _entry(found[at], widest), more=more)


def _entry(news: NewsRow, width: int) -> Text:
    line = Text(f"  {format_clock(news.at)} ", "dim")
    return line.append(cell(news.agent, width), "bold").append(f"  {news.text}", "red" if news.is_bad else "")


def _names(board: SessionBoard, page: BoardPage) -> set[str] | None:
    """Return the names of the agents whose mail and events are shown; None if those of all agents are shown."""
    return None if page.only is None else {page.only, *(row.name for _, row in board.tree(page.only))}
