"""The canonical log of two plays that differ in ids, times, places and in who was faster is the same."""

from pathlib import Path

import pytest

from coterie.scenarios.runner.parsing.agent_names import known_agents
from coterie.scenarios.runner.scenario_result import canonical_log, first_difference
from tests.scenarios.runner.scenario_samples import make_ledger_entry, make_mail_step, make_run_record, seen


def log(root: Path, text: str) -> tuple[str, ...]:
    """Return the log of a run in *root* in which an agent received *text*."""
    content = [{"type": "text", "text": text}]
    return canonical_log(make_run_record(root / "project", seen("main", "message", role="user", content=content)), root)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("stored as 01a1e9dd-950f-77e0-b534-2797ca9bd9dc", "stored as 01a1ffff-950f-77e0-b534-2797ca9bd9dc"),
        ("the call toolu_375fc79505e7d85b", "the call toolu_aaaac79505e7d85b"),
        ("session 20261117-141604-596125", "session 20261118-141604-aaaaaa"),
        ("it took 3.4 seconds, since 2026-11-17T14:00:00", "it took 12 seconds, since 2026-11-18T01:02:03"),
        ("process 4711 has ended", "process 12 has ended"),
        ("It cost $0.0315.", "It cost $0.04."),
        ('<usage turns="2" cost_usd="0.0064446"/>', '<usage turns="2" cost_usd="0.0055182"/>'),
    ],
)
def test_ids_times_numbers_and_amounts_are_masked(one: str, other: str, tmp_path: Path) -> None:
    assert log(tmp_path, one) == log(tmp_path, other)
    assert log(tmp_path, one) != log(tmp_path, f"{other} Really.")


def test_equal_ids_get_equal_names(tmp_path: Path) -> None:
    same = log(tmp_path, "msg_abc and msg_abc")
    assert same == log(tmp_path, "msg_xyz and msg_xyz")
    assert same != log(tmp_path, "msg_abc and msg_xyz")


def test_log_ignores_the_order_between_agents(tmp_path: Path) -> None:
    def told(*turns: tuple[str, str]) -> tuple[str, ...]:
        events = [seen(agent, "tool_ended", name=word) for agent, word in turns]
        said = [seen(agent, "message", content=[{"type": "text", "text": word}]) for agent, word in turns]
        return canonical_log(make_run_record(tmp_path, *events, *said), tmp_path)

    assert told(("a", "1"), ("b", "2")) == told(("b", "2"), ("a", "1"))
    assert told(("a", "1"), ("a", "2")) != told(("a", "2"), ("a", "1"))


def test_log_omits_what_depends_on_timing(tmp_path: Path) -> None:
    quick = make_run_record(
        tmp_path, seen("main", "started"), ledger=[make_ledger_entry("main", "0.1"), make_ledger_entry("scout", "0.2")]
    )
    slow = make_run_record(
        tmp_path,
        seen("main", "retrying"),
        seen("main", "started"),
        seen("main", "finished", reason="cancelled"),
        ledger=[make_ledger_entry("main", "0.2"), make_ledger_entry("scout", "0.1")],
    )
    assert canonical_log(quick, tmp_path) == canonical_log(slow, tmp_path)
    assert canonical_log(quick, tmp_path)[-1] == "cost: 0.3"


def test_log_omits_the_cost_of_restarted_agents(tmp_path: Path) -> None:
    again = seen("root", "agent_changed", name="scout", incarnation=2, state="starting")
    known = make_run_record(
        tmp_path, again, ledger=[make_ledger_entry("main", "0.1"), make_ledger_entry("scout", "0.2")]
    )
    estimated = make_run_record(
        tmp_path,
        again,
        ledger=[
            make_ledger_entry("main", "0.1"),
            make_ledger_entry("scout", "0.9"),
            make_ledger_entry("scout", "0.1", 2),
        ],
    )
    assert canonical_log(known, tmp_path) == canonical_log(estimated, tmp_path)


def test_received_message_is_named_by_its_sender(tmp_path: Path) -> None:
    mail = [make_mail_step("stored", 1), make_mail_step("stored", 2), make_mail_step("stored", 2)]

    def heard(*numbers: int) -> tuple[str, ...]:
        events = [seen("main", "delivered", ids=[f"m{number}" for number in numbers])]
        return canonical_log(make_run_record(tmp_path, *events, mail=mail), tmp_path)

    assert heard(1, 2)[0] == "main: delivered message 1 of scout, message 2 of scout"
    assert heard(1, 2) == heard(2, 1)
    assert heard(1) != heard(2)


def test_the_first_difference_is_told() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == "line 2 was 'b', and now is 'c'"
    assert first_difference(["a"], ["a", "b"]) == "one log has the additional line 'b'"


def test_known_agents_come_from_script_team_and_agent_calls() -> None:
    script = {
        "main": [{"tools": [{"Agent": {"name": "scout"}}, {"Agent": {"subagent_type": "fork"}}]}],
        "helper": ["x"],
        "default": ["x"],
    }
    cast = known_agents(script, {"members": [{"name": "builder"}]})
    there = ("main", "root", "scout", "helper", "builder", "fork-1", "/scou/")
    assert all(map(cast.is_known, there))
    assert not any(map(cast.is_known, ("default", "fork", "fork-x", "scuot")))
    assert not known_agents({"main": [{"tools": [{"Agent": {"name": "a"}}]}]}, None).is_known("/z/")
    assert known_agents({"main": [{"tools": [{"Agent": {"name": "{{agent}}-2"}}]}]}, None).is_known("whoever")
