"""Random fault plans, reproducible from their seed, and the invariants that hold under any fault."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.mailbox.fault_injection import InjectedFault
from coterie.scenarios.api_server.script.script_parser import parse_script
from coterie.scenarios.runner.fuzz.fuzz_runs import check_invariants, end_state
from coterie.scenarios.runner.fuzz.random_faults import MOST, FaultTargets, draw_plan
from coterie.scenarios.runner.parsing.scenario_parser import load_faults, load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.scenario import IoFault, ProcessFault, Scenario, ScenarioLimits
from tests.scenarios.runner.scenario_samples import (
    WHOLE,
    make_ledger_entry,
    make_mail_step,
    make_run_record,
    seen,
    write_scenario,
)

MANY = range(300)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return load_scenario(write_scenario(tmp_path, f"{WHOLE}  - file: {{path: door.txt, equals: open}}\n"))


@pytest.fixture
def targets(scenario: Scenario, tmp_path: Path) -> FaultTargets:
    return FaultTargets.of(
        scenario,
        make_run_record(
            tmp_path,
            seen("root", "agent_changed", name="main", pid=1),
            seen("root", "agent_changed", name="scout", pid=2),
            seen("main", "started"),
            seen("scout", "tool_started", name="Read"),
            seen("scout", "tool_started", name="Read", id="toolu_2"),
        ),
    )


def test_plans_depend_on_the_seed_alone_and_draw_all_kinds_of_faults(targets: FaultTargets) -> None:
    plans = [draw_plan(seed, targets) for seed in MANY]
    assert plans == [draw_plan(seed, targets) for seed in MANY]
    assert len({plan.text for plan in plans}) > len(MANY) / 2
    assert {len(plan.faults) for plan in plans} == set(range(1, MOST + 1))
    kills = {f"kill {target}" for target in ("lead", "zygote", "root", "everything", "a worker")}
    mail = {"drop file", "drop bell", "duplicate file", "delay file", "reorder file"}
    disk = {"torn_write", "disk_full", "fsync_fails", "rename_fails"}
    model = {"rate_limit", "overloaded", "disconnect", "cut"}
    assert {kind for plan in plans for kind in plan.kinds} == kills | mail | disk | model | {"stop", "jump"}


def test_every_plan_can_be_applied_and_saved_as_a_file(
    scenario: Scenario, targets: FaultTargets, tmp_path: Path
) -> None:
    file = tmp_path / "plan.yaml"
    for seed in MANY:
        plan = draw_plan(seed, targets)
        disturbed = plan.apply_to(scenario)
        parse_script(disturbed.script, "script")
        acts = plan.actions()
        assert list(disturbed.actions) == acts
        assert all(isinstance(act, ProcessFault | IoFault) for act in acts)
        if acts:
            file.write_text(plan.text)
            assert load_faults(file, scenario).actions == tuple(acts)


def reasons(scenario: Scenario, play: ScenarioRun) -> list[str]:
    """Return the violated invariants."""
    return [failure.reason for failure in check_invariants(scenario, play)]


def done(project: Path, *events: Any, **facts: Any) -> ScenarioRun:
    """A play that ended well, in which these happened too."""
    (project / "door.txt").write_text("open")
    ended = seen("main", "finished", result="It is open.")
    return attrs.evolve(make_run_record(project, *events, ended, **facts), exit_codes=(0,))


def test_false_success_and_silent_failure_violate_invariants(scenario: Scenario, tmp_path: Path) -> None:
    good = done(tmp_path)
    assert (end_state(good), reasons(scenario, good)) == ("done", [])
    (tmp_path / "door.txt").write_text("shut")
    [reason] = reasons(scenario, good)
    assert reason == "the run ended as done ('It is open.'), but the file door.txt is 'shut'; expected 'open'"
    told = make_run_record(tmp_path, seen("main", "finished", result="It could not be opened."), exit_codes=(0,))
    assert (end_state(told), reasons(scenario, told)) == ("told", [])
    failed = make_run_record(tmp_path, exit_codes=(1,), errors="Error: the disk is full\n")
    assert (end_state(failed), reasons(scenario, failed)) == ("failed", [])
    silent = make_run_record(tmp_path, exit_codes=(1,))
    assert reasons(scenario, silent) == ["the run ended with exit code 1, but without an error text"]


def test_lost_and_duplicate_messages_violate_an_invariant(scenario: Scenario, tmp_path: Path) -> None:
    lost = done(tmp_path, mail=[make_mail_step("stored", 1)])
    assert reasons(scenario, lost) == ["message m1 from scout to main was lost"]
    waits = make_run_record(tmp_path, exit_codes=(1,), errors="why", mail=[make_mail_step("stored", 1)])
    assert reasons(scenario, waits) == []
    dead = done(
        tmp_path,
        mail=[
            make_mail_step("stored", 1),
            make_mail_step("dead", 1),
            make_mail_step("stored", 2, envelope_kind="idle"),
        ],
    )
    assert reasons(scenario, dead) == []
    twice = done(
        tmp_path, mail=[make_mail_step("stored", 1), make_mail_step("delivered", 1), make_mail_step("delivered", 1)]
    )
    assert reasons(scenario, twice) == ["message m1 was delivered to main 2 times; expected once"]


def test_no_call_and_no_finished_task_is_repeated(scenario: Scenario, tmp_path: Path) -> None:
    call, end = seen("scout", "tool_started"), seen("scout", "finished")
    assert reasons(scenario, done(tmp_path, call, call)) == ["scout ran the tool call toolu_1 2 times; expected once"]
    assert reasons(scenario, done(tmp_path, end, end)) == ["scout finished its task 2 times; expected once"]
    cut_off = seen("scout", "finished", reason="cancelled")
    assert reasons(scenario, done(tmp_path, cut_off, end)) == []


def test_cost_over_the_limit_violates_an_invariant(scenario: Scenario, tmp_path: Path) -> None:
    line = make_ledger_entry("main", "0.3")
    cheap = attrs.evolve(scenario, limits=ScenarioLimits(dollars=Decimal("0.25")))
    assert reasons(cheap, done(tmp_path, ledger=[line])) == ["the cost is $0.3, over the limit of $0.25"]
    assert reasons(scenario, done(tmp_path, ledger=[line])) == []


def test_leftovers_are_reported_except_files_torn_by_a_fault(scenario: Scenario, tmp_path: Path) -> None:
    found = ("/s/events.jsonl: the last write was torn", "process 5, python")
    fault = InjectedFault(id=0, by="scout", what="torn_write: /s/events.jsonl")
    assert len(reasons(scenario, done(tmp_path, findings=found))) == 2
    assert reasons(scenario, done(tmp_path, findings=found, injected_faults=[fault])) == [
        "left behind after the run: process 5, python"
    ]
