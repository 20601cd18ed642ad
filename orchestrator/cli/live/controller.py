"""Keyboard controller of the board: turns keys into selection, text input and requests to the root (supervisor)."""

import time
from typing import Literal

import attrs

from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.keyboard import PASTED
from coterie.orchestrator.cli.live.rows import clean_text
from coterie.orchestrator.cli.live.text_layout import fit_end
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import DecideApproval, StopAgent
from coterie.orchestrator.session.root_lock import RootIdentity

BoardRequest = DecideApproval | StopAgent
"""Request to the root (supervisor process of the session) that a key causes: decide an approval, or stop an agent."""

KEYS = (
    "up/down choose   enter look   a approve   r reject   s stop   q leave   ? help",
    "a approve  r reject  s stop  q leave  ? help",
    "q leave  ? help",
)
"""Key hints on the last line of the board; the first one that fits the terminal is shown."""
HELP = (
    "up, down    choose an approval or an agent; k, j too",
    "enter       show details of the chosen line; enter or escape goes back",
    "a           approve the chosen request",
    "r           reject the chosen request: type a reason; escape cancels",
    "s           stop the chosen agent and those it started; asks once",
    "q           leave; the session continues",
    "?           show this page; ? or escape goes back",
)
BACK = ("up/down scroll   a approve   r reject   s stop   escape back   q leave", "escape back  q leave")
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}
LONGEST_FEEDBACK = 4000
NOTICED = 8.0
"""Seconds for which a notice, such as `approved`, is shown on the last line."""

PageName = Literal["board", "help", "details"]


@attrs.frozen
class Selection:
    """Selected line of the board, identified by name or id, so that the same line stays selected when it moves."""

    sort: Literal["approval", "agent"]
    name: str
    """Name of the agent, or id of the approval."""


@attrs.define(eq=False)
class BoardController:
    """State of the board's user interface, which keys change: page, selected line, typed text, unanswered request."""

    board: SessionBoard
    only: str | None = None
    """Name of the agent that is shown, together with its descendants; None to show all agents."""
    prompt: Literal["", "feedback", "stopping"] = attrs.field(default="", init=False)
    """Input that the last line expects: `feedback` (reason of a rejection), `stopping` (confirmation), or empty."""
    scroll: int = attrs.field(default=0, init=False)
    """Number of lines of the details or help page that are scrolled off the top."""
    typed: str = attrs.field(default="", init=False)
    has_quit: bool = attrs.field(default=False, init=False)
    is_asking: bool = attrs.field(default=False, init=False)
    """True from sending a request to the root (supervisor process) until its answer is shown."""
    _page: PageName = attrs.field(default="board", init=False)
    _chosen: Selection | None = attrs.field(default=None, init=False)
    _notice: str = attrs.field(default="", init=False)
    _noticed: float = attrs.field(default=0.0, init=False)

    @property
    def chosen(self) -> Selection | None:
        """Selected line; None if no line was selected or the selected line is no longer on the board."""
        if self._chosen is None:
            return None
        lines = self.board.approvals if self._chosen.sort == "approval" else self.board.agents
        return self._chosen if self._chosen.name in lines else None

    @property
    def page(self) -> PageName:
        """Page to show. Instead of `details` it is `board` if the line with these details is no longer there."""
        return "board" if self._page == "details" and self.chosen is None else self._page

    @property
    def notice(self) -> str:
        """Result of the last key; empty after `NOTICED` seconds, but not while a request is unanswered."""
        is_fresh = self.is_asking or time.monotonic() < self._noticed + NOTICED
        return self._notice if is_fresh else ""

    def foot(self, width: int) -> str:
        """Return the last line of the screen for *width* columns: a question with typed text, a notice or key hints."""
        match self.prompt:
            case "feedback":
                keys = "_   enter: reject   escape: back" if self.typed.strip() else "_   type a reason; escape: back"
                return f"why? {fit_end(self.typed, width - len('why? ') - len(keys))}{keys}"
            case "stopping":
                assert self._chosen is not None
                return f"stop {self._chosen.name} and the agents it started?   y: yes   any other key: no"
            case _:
                hints = KEYS if self.page == "board" else BACK
                return self.notice or next((hint for hint in hints if len(hint) <= width), hints[-1])

    def handle_key(self, key: str) -> BoardRequest | None:
        """Change the state by *key*, such as `up`. Return a request to send to the root (supervisor), or None."""
        self._page = self.page
        self._notify("")
        match self.prompt:
            case "feedback":
                return self._type(key)
            case "stopping":
                return self._confirm(key)
            case _:
                return self._command(key)

    def show_notice(self, notice: str) -> None:
        """Show *notice*, the result of the last request to the supervisor, on the last line; allow the next request."""
        self.is_asking = False
        self._notify(clean_text(notice))

    def _notify(self, notice: str) -> None:
        self._notice, self._noticed = notice, time.monotonic()

    def _command(self, key: str) -> BoardRequest | None:  # noqa: C901 - one line for each key
        match key:
            case "q" | "gone":
                self.has_quit = True
            case "escape" | "enter" | "?" if self._page != "board":
                self._page = "board"
            case "?":
                self._page = "help"
            case "enter" if self.chosen is not None:
                self._page, self.scroll = "details", 0
            case "enter":
                self._notify("choose a line first, with up and down")
            case _ if key in STEPS:
                self._step(STEPS[key])
            case "a" | "r" | "s" if self.is_asking:
                self._notify("the last request is not answered yet; wait and press the key again")
            case "a" | "r" if (approval := self._approval(key)) is not None:
                return self._decide(key, approval)
            case "s":
                self._begin_stop()
            case _ if key.startswith(PASTED):
                self._notify("pasted text was ignored; keys are commands here")
        return None

    def _step(self, by: int) -> None:
        if self._page == "board":
            self._choose(by)
        else:
            self.scroll = max(0, self.scroll + by)

    def _lines(self) -> list[Selection]:
        """Return the lines that can be selected, from top to bottom: approvals, then agents."""
        approvals = (Selection("approval", row.id) for row in self.board.open_approvals(self.only))
        return [*approvals, *(Selection("agent", row.name) for _, row in self.board.tree(self.only))]

    def _choose(self, by: int) -> None:
        if not (lines := self._lines()):
            return
        if self._chosen not in lines:
            self._chosen = lines[0]
            return
        self._chosen = lines[min(max(lines.index(self._chosen) + by, 0), len(lines) - 1)]

    def _approval(self, key: str) -> str | None:
        """Return the selected approval's id; else select the first, show a notice to repeat *key*, and return None."""
        if (chosen := self.chosen) is not None and chosen.sort == "approval":
            return chosen.name
        first = next(iter(self.board.open_approvals(self.only)), None)
        if first is None:
            self._notify("no approval request is listed")
            return None
        self._chosen = Selection("approval", first.id)
        self._notify(f"{key} again: {'approve' if key == 'a' else 'reject'} {first.subject}")
        return None

    def _decide(self, key: str, approval: str) -> BoardRequest | None:
        if key == "r":
            self.prompt, self.typed = "feedback", ""
            return None
        return self._order(DecideApproval(id=approval, approve=True))

    def _begin_stop(self) -> None:
        if (chosen := self.chosen) is None or chosen.sort != "agent":
            self._notify("choose an agent first, with up and down")
        elif self.board.agents[chosen.name].has_ended:
            self._notify(f"{chosen.name} has already ended")
        else:
            self.prompt = "stopping"

    def _confirm(self, key: str) -> BoardRequest | None:
        self.prompt = ""
        if key not in ("y", "Y") or self.chosen is None:
            return None
        return self._order(StopAgent(name=self.chosen.name))

    def _type(self, key: str) -> BoardRequest | None:
        match key:
            case "enter" if self.typed.strip():
                return self._reject()
            case "escape" | "gone":
                self.prompt, self.has_quit = "", key == "gone"
            case "backspace":
                self.typed = self.typed[:-1]
            case "clear":
                self.typed = ""
            case _ if len(key) == 1 or key.startswith(PASTED):
                self.typed = (self.typed + key.removeprefix(PASTED))[:LONGEST_FEEDBACK]
        return None

    def _reject(self) -> BoardRequest | None:
        self.prompt = ""
        if self.chosen is None:
            self._notify("this request has already been answered; nothing was sent")
            return None
        return self._order(DecideApproval(id=self.chosen.name, approve=False, feedback=self.typed.strip()))

    def _order(self, order: BoardRequest) -> BoardRequest:
        self.is_asking = True
        self._notify("sending the request ...")
        return order


async def send_board_request(root: RootIdentity | None, order: BoardRequest) -> str:
    """Send *order* to the supervisor *root* (None: none runs); return a notice. A cancellation does not withdraw it."""
    if root is None:
        return "the session is not running; leave with q and run `coterie resume`"
    try:
        await send_request(root, order)
    except ConfigInvalid as exc:
        return exc.reason
    return request_result_text(order)


def request_result_text(order: BoardRequest) -> str:
    """Return the notice for *order* after the supervisor has executed it: `approved`, `rejected` or `stopped NAME`."""
    if isinstance(order, DecideApproval):
        return "approved" if order.approve else "rejected"
    return f"stopped {order.name}"
