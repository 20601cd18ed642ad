"""Live screen: redraws the board on changes and handles keys."""

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
"""Least seconds between two redraws."""
PAUSE = 0.25
"""Least seconds between two reads of the files; one read takes 10 ms with a hundred agents."""
PATIENCE = 5.0
"""Seconds in which pending requests may finish after the user left."""
TICK = 1.0
"""Seconds between redraws without a change, because durations are shown."""


@attrs.define(eq=False, kw_only=True)
class LiveScreen:
    """A board on a terminal, with its keys."""

    poller: SessionPoller
    keyboard: Keyboard
    console: Console
    clock: Clock
    controller: BoardController
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Show the board until the user leaves or the terminal is closed.

        Pending requests may finish for a few seconds. Cancellation and errors restore the terminal.
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
        """Render the present screen in the present size of the terminal."""
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
        """Render a text page: the help, or details of the chosen line."""
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
