"""Lines of the board on terminals of different sizes."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coterie.agents.events.agent_events import ProgressSummarized, ToolStarted
from coterie.agents.events.root_events import Budgeted
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.board_render import BoardPage, print_board, render_board
from coterie.orchestrator.cli.live.controller import Selection
from coterie.orchestrator.cli.live.text_layout import cut, fit_end, justify, visible
from tests.orchestrator.cli.live.board_session import BoardSession, drawn
from tests.orchestrator.session_writer import STARTED, reply

CALL = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "shop/money.py"}}


@pytest.fixture
def team(stage: BoardSession) -> BoardSession:
    """A running coordinator with a worker that asks, a running worker and a finished one."""
    stage.change("main", "waiting", "2 agents")
    stage.agent("main").write_event(STARTED)
    stage.add_cost("main", write_5m=9_000, output=50)
    for name in ("reader", "mender", "tester"):
        stage.change(name, "running")
        stage.agent(name).write_event(STARTED)
        stage.add_cost(name, parent="main", read=8_000, write_5m=1_000, output=50)
    stage.agent("reader").write_text("assistant", "It cuts cents off.", reply())
    stage.send("reader", "main", "It cuts cents off.")
    stage.change("reader", "done")
    stage.agent("tester").put("assistant", CALL, reply())
    stage.agent("tester").write_event(ToolStarted(id="t1", name="Edit"))
    stage.agent("tester").write_event(ProgressSummarized(text="Editing share()", turn=1, seconds=1.0, cost_usd="0"))
    stage.ask("plan-1", "mender", "", plan="Round half a cent up in shop/money.py.")
    stage.change("mender", "plan_pending", "Round half a cent up in shop/money.py.")
    return stage


def shown(lines: list[str], board: SessionBoard) -> str:
    """Lines of a board with a fixed session id and time, which differ between runs."""
    text = "\n".join(lines).replace(board.session, "20261117-141840-48faf4")
    return re.sub(r"\d\d:\d\d:\d\d", "12:00:00", text)


def test_board_at_80_columns(team: BoardSession) -> None:
    board = team.board("0.5")
    assert (
        shown(drawn(board), board)
        == """\
20261117-141840-48faf4  running  23 s            $0.0688 of $0.5 ━───────── 14 %
Some invoices with a discount are a cent …  1 waiting, 1 done, 1 asks, 1 running
APPROVALS  1 open
  ? mender  plan  6 s  Round half a cent up in shop/money.py.
    AGENT      STATE                                  TOKENS CACHE TURNS     USD
  ◔ main       waiting  2 agents                        9.1k   0 %        0.0460
  ✓   reader   done                                     9.1k  89 %     1  0.0076
  ?   mender   asks     Round half a cent up in sho…    9.1k  89 %        0.0076
  ●   tester   running  Editing share()                 9.1k  89 %     1  0.0076
MAIL
  12:00:00 reader -> main  It cuts cents off.
EVENTS
  12:00:00 main    is waiting: 2 agents
  12:00:00 main    started with m
  12:00:00 reader  started with m
  12:00:00 mender  started with m
  12:00:00 tester  started with m
  12:00:00 reader  says: It cuts cents off.
  12:00:00 tester  Editing share()
  12:00:00 mender  asks you for approval of its plan, plan-1: Round half a cent…



the foot"""
    )


def test_board_fits_a_tiny_terminal(team: BoardSession) -> None:
    board = team.board("1")
    for width in (1, 2, 7, 20, 39, 59):
        for height in (1, 2, 3, 4, 5, 8, 12):
            drawn(board, width, height, chosen=Selection("agent", "tester"))


def test_asking_and_chosen_agents_are_visible_among_a_hundred(stage: BoardSession) -> None:
    stage.change("main", "waiting")
    for number in range(100):
        stage.change(f"worker-{number}", "done" if number % 2 else "running")
    stage.ask("permission-1", "worker-78", "ls")
    text = "\n".join(drawn(stage.board(), chosen=Selection("agent", "worker-99")))
    assert re.search(r"> . +worker-99 +done", text)
    assert re.search(r"  \? +worker-78 +asks", text)
    assert re.search(r"    \.\.\. \d\d more", text)
    assert "49 running, 1 waiting, 1 asks" in text
    assert "worker-0 " in text
    assert "worker-1 " not in text


def test_only_option_shows_one_agent_and_those_below(team: BoardSession) -> None:
    team.change("helper", "running", parent="tester")
    text = "\n".join(drawn(team.board(), only="tester"))
    assert "tester only: Some invoices" in text
    assert "helper" in text
    for other in ("main", "reader", "mender", "APPROVALS", "MAIL"):
        assert other not in text, other


def test_board_without_agents_has_a_notice(stage: BoardSession) -> None:
    assert "starting" in drawn(stage.board())[2]
    with stage.open_poller() as poller:
        poller.end()
        assert "no agent" in drawn(poller.board)[2]


def test_budget_bar_shows_the_spent_share(stage: BoardSession) -> None:
    stage.change("main", "running")
    stage.add_cost("main", output=2000)
    for budget, bar in (("100", "────────── 0 %"), ("0.08", "━━━━━───── 50 %"), ("0.001", "━━━━━━━━━━ 100 %")):
        assert drawn(stage.board(budget))[0].endswith(f"$0.0400 of ${budget} {bar}")
    stage.root(Budgeted(dollars=None))
    assert drawn(stage.board())[0].endswith("  $0.0400")


def test_ascii_terminal_gets_only_ascii(team: BoardSession) -> None:
    board = team.board("0.5")
    page = BoardPage(width=80, height=12, now=0.0, is_plain=True)
    text = "\n".join(line.plain for line in render_board(board, page)).replace("…", "")
    assert text.isascii()
    assert "#......... 14 %" in text


def test_printed_board_ends_after_its_last_line_and_is_not_wrapped_by_a_terminal(team: BoardSession) -> None:
    plain, file = io.StringIO(), io.StringIO()
    print_board(team.board(), Console(file=plain, width=80), now=0.0, height=50)
    assert not plain.getvalue().endswith("\n\n")
    assert "\x1b" not in plain.getvalue()
    print_board(team.board(), Console(file=file, width=80, force_terminal=True), now=0.0, height=50)
    assert file.getvalue().startswith("\x1b[?7l")
    assert file.getvalue().endswith("\n\x1b[?7h")


@pytest.mark.slow
@given(st.text(), st.text(), st.integers(0, 90))
def test_layout_never_exceeds_the_width(left: str, right: str, width: int) -> None:
    assert cut(left, width).cell_len <= width
    assert cell_len(fit_end(left, width)) <= width
    assert justify(Text(left), Text(right), width).cell_len <= width
    assert visible(Text(left)).plain.isprintable()
