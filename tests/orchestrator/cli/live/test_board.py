"""State of the board, computed from the files of a session, and its lines on terminals of different sizes."""

import io
import re

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from coterie.agents.events.agent_events import Finished, ProgressSummarized, ToolEnded, ToolStarted
from coterie.agents.events.root_events import ApprovalRejected
from coterie.agents.loop.conversation.transcript_records import MailRecord
from coterie.mailbox.message_bodies import TaskNotification
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.board_render import print_board
from coterie.orchestrator.cli.live.controller import Selection
from coterie.orchestrator.cli.live.poller import open_poller
from coterie.orchestrator.cli.live.rows import AgentRow
from coterie.orchestrator.cli.live.text_layout import cut, fit_end, justify, visible
from tests.orchestrator.cli.live.board_session import BoardSession, drawn
from tests.orchestrator.session_writer import FINISHED, STARTED, reply

CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test"}}


def names(stage: BoardSession) -> list[tuple[int, str]]:
    return [(depth, row.name) for depth, row in stage.board().tree()]


def row(stage: BoardSession, name: str = "main") -> AgentRow:
    return stage.board().agents[name]


def test_agents_are_listed_below_their_parent_in_start_order(stage: BoardSession) -> None:
    for name, parent in (("main", None), ("b", "main"), ("a", "main"), ("c", "b"), ("d", "main")):
        stage.change(name, "running", parent=parent)
    stage.add_cost("d", parent="main", output=1)  # the first that has a reply
    stage.add_cost("a", parent="main", output=1)
    assert names(stage) == [(0, "main"), (1, "b"), (2, "c"), (1, "a"), (1, "d")]
    assert [row.name for _, row in stage.board().tree("b")] == ["b", "c"]


def test_agents_with_an_unknown_or_cyclic_parent_are_at_the_top(stage: BoardSession) -> None:
    for name, parent in (("x", "nobody"), ("a", "b"), ("b", "a"), ("c", "c")):
        stage.change(name, "running", parent=parent)
    assert {name for _, name in names(stage)} == {"x", "a", "b", "c"}
    assert (0, "x") in names(stage)


def test_turns_tokens_and_costs_equal_transcript_and_ledger(stage: BoardSession) -> None:
    stage.change("main", "running")
    stage.agent("main").write_event(STARTED)
    stage.agent("main").write_text("assistant", "One.", reply())
    stage.agent("main").write_text("assistant", "Two.", reply(2))
    cost = stage.add_cost("main", read=900, input=100, output=50) + stage.add_cost("main", read=1000)
    found = stage.board()
    [main] = found.agents.values()
    assert (main.turns, main.model, main.said) == (2, "m", "Two.")
    assert (main.spending.usage.total, main.spending.cached_share) == (2050, 0.95)
    assert main.spending.cost == found.spending.cost == cost


def test_activity_is_shown_until_the_agent_ends(stage: BoardSession) -> None:
    stage.change("main", "running")
    main = stage.agent("main")
    main.write_event(STARTED)
    main.put("assistant", CALL, reply())
    main.write_event(ToolStarted(id="t1", name="Bash"))
    assert row(stage).activity == row(stage).call == "Bash make test"
    main.write_event(ProgressSummarized(text="Running the tests", turn=1, seconds=1.0, cost_usd="0"))
    assert (row(stage).activity, row(stage).call) == ("Running the tests", "Bash make test")
    main.write_event(ToolEnded(id="t1", name="Bash", is_error=False, seconds=1.0, characters=1))
    assert (row(stage).activity, row(stage).call) == ("Running the tests", "")
    main.write_event(FINISHED)
    stage.change("main", "failed", "out of turns")
    assert (row(stage).activity, row(stage).progress, row(stage).has_ended) == ("out of turns", "", True)


def test_messages_of_the_parent_are_not_news_of_a_fork(stage: BoardSession) -> None:
    fork = stage.agent("part")
    fork.write_text("assistant", "Words of the parent.")
    fork.write_event(STARTED)
    assert row(stage, "part").said == ""
    fork.write_text("assistant", "My own.", reply())
    found = stage.board()
    assert found.agents["part"].said == "My own."
    assert [news.text for news in found.news] == ["started with m", "says: My own."]


def test_events_of_an_earlier_incarnation_are_ignored(stage: BoardSession) -> None:
    stage.change("main", "running", incarnation=2, pid=7)
    stage.change("main", "killed", "late", incarnation=1)
    assert (row(stage).state, row(stage).incarnation, row(stage).pid) == ("running", 2, 7)


def test_mail_is_stored_delivered_or_dead(stage: BoardSession) -> None:
    under_way = stage.send("a", "main", "Still to be read.")
    delivered = stage.send("main", "a", "x" * 1000, summary="in short")
    dead = stage.mail.make_message("a", "gone", "Nobody reads it.")
    stage.mail.add_dead_letter(dead)
    stage.send("a", "main", "{}", kind="idle")
    writer = stage.agent("a")
    writer.transcript.record(writer.conversation, MailRecord(ids=[delivered.id]))
    letters = {letter.id: letter for letter in stage.board().letters}
    assert letters.keys() == {under_way.id, delivered.id, dead.id}
    assert [letters[each.id].way for each in (under_way, delivered, dead)] == ["stored", "delivered", "dead"]
    assert letters[delivered.id].gist == "in short"
    report = TaskNotification(status="completed", summary="a is done", result="It works.")
    stage.send("a", "main", report.to_body(), kind="task_notification")
    assert "completed: It works." in [letter.gist for letter in stage.board().letters]


def test_open_approvals_list_those_of_the_user_first(stage: BoardSession) -> None:
    stage.ask("plan-1", "a", "", by="lead", plan="Look\nand mend")
    stage.ask("permission-2", "b", "rm -r x")
    assert [each.subject for each in stage.board().open_approvals()] == ["Bash rm -r x", "Look"]
    stage.change("a", "running")
    assert [each.id for each in stage.board().open_approvals("a")] == ["plan-1"]
    stage.root(ApprovalRejected(id="plan-1", by="b", reason="only the lead"))
    stage.decide("permission-2", "b", "rejected", feedback="not that")
    board = stage.board()
    assert [each.id for each in board.open_approvals()] == ["plan-1"]
    assert [news.text for news in board.news] == [
        "asks the lead for approval of its plan, plan-1: Look",
        "asks you for permission, permission-2: Bash rm -r x",
        "answer by b to plan-1 was ignored: only the lead",
        "permission-2 was rejected by you: not that",
    ]


def test_agents_without_an_end_are_interrupted_when_the_root_ends(stage: BoardSession) -> None:
    stage.change("main", "running")
    stage.change("a", "done")
    with open_poller(stage.session) as poller:
        poller.end()
        assert {row.name: row.state for row in poller.board.agents.values()} == {"main": "interrupted", "a": "done"}
        assert (poller.board.state, poller.board.finished) == ("interrupted", None)


def test_a_resumed_run_is_not_finished(stage: BoardSession) -> None:
    main = stage.agent("main")
    main.write_event(STARTED)
    main.write_event(FINISHED)
    assert isinstance(stage.board().finished, Finished)
    main.write_event(msgspec.structs.replace(STARTED, incarnation=2))
    assert stage.board().finished is None
    assert stage.board().news[-1].text == "started with m, start 2"


def test_damaged_lines_are_news_and_damaged_costs_are_skipped(stage: BoardSession) -> None:
    stage.change("main", "running")
    with (stage.session.directory / "events.jsonl").open("ab") as log:
        log.write(b"{broken}\n")
    with (stage.session.directory / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b"\n{broken}\n")
    cost = stage.add_cost("main", output=10)
    board = stage.board()
    assert board.spending.cost == cost
    assert [news.text.split(": ")[0] for news in board.news] == ["events.jsonl:2"]


def test_later_events_wake_the_poller_and_are_read_once(stage: BoardSession) -> None:
    async def look() -> None:
        with trio.fail_after(60), open_poller(stage.session) as poller:
            assert not poller.poll()
            for name in ("main", "late"):
                stage.change(name, "running")
                stage.agent(name).write_event(STARTED)
                await poller.wait()
                assert poller.poll()
            stage.agent("late").write_text("assistant", "Here.", reply())
            await poller.wait()
            assert poller.poll()
            assert poller.board.agents["late"].turns == 1
            assert poller.board.news_count == 3

    trio.run(look)


EDIT = {"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": "shop/money.py"}}


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
    stage.agent("tester").put("assistant", EDIT, reply())
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
