"""The live view of a run, in the process that started it."""

import attrs

from coterie.orchestrator.cli.live.showing import print_last_board, read_last_board, show_board
from coterie.orchestrator.cli.views.view import View
from coterie.orchestrator.session import Session


@attrs.define(eq=False)
class LiveView(View):
    """The board while the session works; in the end the last one, with what the lead said below it."""

    shows_approvals = True

    _session: Session | None = attrs.field(default=None, init=False)

    async def attend(self, session: Session) -> bool:
        """Show the board until the user leaves. Raises `OSError` without a terminal."""
        self._session = session
        await show_board(session)
        self._session = None
        return True

    def close(self) -> None:
        """Print how it ended; nothing if the user has left before that."""
        session, self._session = self._session, None
        if session is not None:
            print_last_board(read_last_board(session))
