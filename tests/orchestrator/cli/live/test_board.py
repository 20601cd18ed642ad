"""State of the board, computed from the files of a session."""

import trio

from coterie.agents.events.agent_events import Finished, Noticed, ProgressSummarized, RunStarted, ToolEnded, ToolStarted
from coterie.agents.events.root_events import ApprovalRejected
from coterie.agents.loop.conversation.transcript_records import MailRecord
from coterie.orchestrator.cli.live.board import KEPT
from coterie.orchestrator.cli.live.rows import AgentRow
from tests.orchestrator.cli.live.board_session import BoardSession
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
    assert {id_: letter.way for id_, letter in letters.items()} == {
        under_way.id: "stored",
        delivered.id: "delivered",
        dead.id: "dead",
    }
    assert letters[delivered.id].gist == "in short"


def test_open_approvals_list_those_of_the_user_first(stage: BoardSession) -> None:
    stage.ask("plan-1", "a", "", by="lead", plan="Look\nand mend")
    stage.ask("permission-2", "b", "rm -r x")
    assert [(each.id, each.subject) for each in stage.board().open_approvals()] == [
        ("permission-2", "Bash rm -r x"),
        ("plan-1", "Look"),
    ]
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
    with stage.open_poller() as poller:
        poller.end()
        assert {row.name: row.state for row in poller.board.agents.values()} == {"main": "interrupted", "a": "done"}
        assert (poller.board.state, poller.board.finished) == ("interrupted", None)


def test_a_resumed_run_is_not_finished(stage: BoardSession) -> None:
    main = stage.agent("main")
    main.write_event(STARTED)
    main.write_event(FINISHED)
    assert isinstance(stage.board().finished, Finished)
    main.write_event(
        RunStarted(session="s", incarnation=2, model="m", permission_mode="default", project="/p", tools=[])
    )
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


def test_news_beyond_the_limit_are_only_counted(stage: BoardSession) -> None:
    for number in range(KEPT + 7):
        stage.root(Noticed(source="test", reason=str(number)))
    board = stage.board()
    assert (len(board.news), board.news_count) == (KEPT, KEPT + 7)
    assert board.news[-1].text == f"test: {KEPT + 6}"


def test_later_events_wake_the_poller_and_are_read_once(stage: BoardSession) -> None:
    async def look() -> None:
        with trio.fail_after(60), stage.open_poller() as poller:
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
