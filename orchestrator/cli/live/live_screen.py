"""Live screen: draws the board of a session on the terminal, redraws it after changes, and handles keys."""

import signal

import attrs
import trio
from rich.console import Console
from rich.text import Text

from coterie.clock import Clock
from coterie.orchestrator.cli.live.board_render import BoardPage, render_board
from coterie.orchestrator.cli.live.canvas import Canvas, open_canvas
from coterie.orchestrator.cli.live.controller import HELP, BoardController, BoardRequest, send_board_request
from coterie.orchestrator.cli.live.detail_pane import detail_lines
from coterie.orchestrator.cli.live.keyboard import Keyboard
from coterie.orchestrator.cli.live.poller import SessionPoller
from coterie.orchestrator.cli.live.text_layout import cut
from coterie.orchestrator.session.root_lock import find_root

BREATH = 0.1
"""Minimum seconds between two redraws of the screen."""
PAUSE = 0.25
"""Minimum seconds between two reads of the session's files; one read takes 10 ms with a hundred agents."""
PATIENCE = 5.0
"""Seconds to wait for unanswered requests to the root (supervisor process) after the user has left the board."""
TICK = 1.0
"""Seconds after which the screen is redrawn even without a change, because it shows durations."""


@attrs.define(eq=False, kw_only=True)
class LiveScreen:
    """Full-screen board of a running session: reads the session's files, draws, handles keys and sends requests."""

    poller: SessionPoller
    keyboard: Keyboard
    console: Console
    clock: Clock
    controller: BoardController
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Show the board until the user leaves it or the terminal is closed; then restore the earlier screen content.

        Open requests to the supervisor get `PATIENCE` more seconds. Cancellation and errors restore the screen too.
        """
        with open_canvas(self.console) as canvas:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poll_files)
                nursery.start_soon(self._handle_resizes)
                nursery.start_soon(self._draw, canvas)
                async with trio.open_nursery() as requests:
                    await self._handle_keys(requests)
                    requests.cancel_scope.deadline = trio.current_time() + PATIENCE
                nursery.cancel_scope.cancel()

    async def _poll_files(self) -> None:
        while True:
            await self.poller.wait()
            if self.poller.poll():
                self._changed.set()
            await trio.sleep(PAUSE)  # a burst of changes is read once

    async def _handle_resizes(self) -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._changed.set()

    async def _handle_keys(self, requests: trio.Nursery) -> None:
        while not self.controller.has_quit:
            for key in await self.keyboard.read():
                if (request := self.controller.handle_key(key)) is not None:
                    requests.start_soon(self._send_request, request)
            self._changed.set()

    async def _send_request(self, request: BoardRequest) -> None:
        # Looked up for each request, because the session may have a new root after a resume.
        self.controller.show_notice(await send_board_request(find_root(self.poller.session), request))
        self._changed.set()

    async def _draw(self, canvas: Canvas) -> None:
        while True:
            lines = self.lines()
            try:
                canvas.paint(lines)
            except OSError:
                return  # closed, which the keyboard reports
            await trio.sleep(BREATH)
            with trio.move_on_after(TICK):
                await self._changed.wait()
            self._changed = trio.Event()

    def lines(self) -> list[Text]:
        """Return the lines of the page to show (board, help or details) for the present size of the terminal."""
        width, height = self.console.size
        controller = self.controller
        page = BoardPage(
            width=width,
            height=height,
            now=self.clock.now(),
            chosen=controller.chosen,
            only=controller.only,
            foot=controller.foot(width),
            is_urgent=bool(controller.prompt or controller.notice),
            is_plain=self.console.options.ascii_only,
        )
        if controller.page == "board":
            return render_board(self.poller.board, page)
        return self._text_page(page)

    def _text_page(self, page: BoardPage) -> list[Text]:
        """Return the visible lines of the scrolled help or details page, padded to the screen, and the last line."""
        chosen, room = self.controller.chosen, max(page.height - 1, 0)
        if self.controller.page == "help" or chosen is None:
            lines = [cut(line, page.width) for line in HELP]
        else:
            lines = detail_lines(self.poller.session, self.poller.board, chosen, page.width)
        self.controller.scroll = min(self.controller.scroll, max(len(lines) - room, 0))
        hidden = len(lines) - room - self.controller.scroll
        shown = lines[self.controller.scroll :][:room]
        if hidden > 0 and shown:
            shown[-1] = cut(f"... {hidden + 1} more lines", page.width, "dim")
        foot = cut(page.foot, page.width, "reverse" if page.is_urgent else "dim")
        return [*shown, *[Text("")] * (room - len(shown)), foot][: page.height]
