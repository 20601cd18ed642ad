"""`coterie scenario`: output for runs that time out, fail or have faults, and for invalid files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coterie.scenarios import command
from tests.scenarios.runner.scenario_samples import WHOLE, write_scenario

TIMEOUT = 240


def scenario(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-P", "-m", "coterie", "scenario", *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=TIMEOUT)


def only(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the only scenario of a JSON output."""
    [told] = json.loads(done.stdout)["scenarios"]
    assert isinstance(told, dict)
    return told


HANGS = """\
about: A worker waits for what never comes.
task: Look at the door.
model: opus
permission_mode: bypassPermissions
script:
  main: [{tools: [{Agent: {name: scout, description: look, prompt: Look.}}]}, Done.]
  scout: [{tools: [{Bash: {command: sleep 600}}]}, Done.]
limits: {seconds: $SECONDS}
expect: [{exit_code: 0}]
"""


@pytest.mark.slow
def test_run_that_hangs_fails_at_its_time_limit_with_the_state_of_each_agent(tmp_path: Path) -> None:
    for seconds in (5, 90):  # 90 for a machine too slow to start the worker within 5 seconds
        text = HANGS.replace("$SECONDS", str(seconds))
        done = scenario("run", str(write_scenario(tmp_path, text)), "--json")
        assert done.returncode == 1
        [hung, code] = only(done)["failures"]
        assert hung["reason"].startswith(f"the run was killed after {seconds} seconds ")
        assert code["reason"] == "the exit code of the last command is None; expected 0"
        if "scout is running" in hung["reason"]:
            break
    assert "main is waiting" in hung["reason"] or "main is running" in hung["reason"]
    assert "scout is running" in hung["reason"]
    assert any("scout: tool_started" in line for line in hung["around"])


DISTURBED = (
    WHOLE.replace("scout: [Open.]", "scout: [{tools: [{Glob: {pattern: '*'}}], delay: 1}, Open.]")
    + """\
  - event: {kind: finished, agent: main, result: It is shut.}
  - mail: {exactly_once: true}
model: opus
faults:
  - {do: drop, transport: file, target: lead}
  - {do: drop, transport: bell, target: lead, times: always}
  - {do: duplicate, transport: file, target: lead}
  - {do: delay, transport: file, target: lead, seconds: 0.1}
  - {when: {kind: started, agent: scout}, do: stop, target: scout, seconds: 0.2}
  - {do: disk_full, target: scout, files: no/such/file}
"""
)


@pytest.mark.slow
def test_failed_run_prints_lines_and_the_command_to_repeat_it(tmp_path: Path) -> None:
    """All faults but one are applied without effect on mail; the wrong expectation fails."""
    path = write_scenario(tmp_path, DISTURBED)
    done = scenario("run", str(path), "--seed", "7", "--json")
    assert done.returncode == 1
    told = only(done)
    assert [(failure["line"], failure["reason"].partition(" ")[0]) for failure in told["failures"]] == [
        (19, "the"),
        (10, "finished"),
    ]
    assert "no matching operation happened" in told["failures"][0]["reason"]
    struck = {strike.partition(": ")[2].partition(":")[0] for strike in told["strikes"]}
    assert struck == {"drop", "duplicate", "delay"}
    assert f"{path}, line 10: finished agent='main' result='It is shut.' happened 0 times" in done.stderr
    assert 'main: finished {"reason":"completed","result":"It is open."' in done.stderr
    assert f"again: coterie scenario run {path} --seed 7 --keep" in done.stderr


def invoke_scenario(*arguments: str) -> tuple[int, str]:
    """Return exit code and output of `coterie scenario` for a command that starts nothing."""
    result = CliRunner().invoke(command.scenario, arguments)
    return result.exit_code, result.output


def test_invalid_scenario_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "about: x\ntask: y\nscript: {main: [z]}\nexpect: [{exit_cod: 0}]\nmodle: opus\n")
    code, output = invoke_scenario("run", str(path))
    assert code == 2
    assert output.splitlines()[-2:] == [
        f"Error: {path}, line 4: expect[1] has an unknown key 'exit_cod'; did you mean 'exit_code'?",
        f"{path}, line 5: the scenario has an unknown key 'modle'; did you mean 'model'?",
    ]
    code, output = invoke_scenario("run", "cordinator")
    assert (code, "did you mean" in output) == (2, True)
    code, output = invoke_scenario("run")
    assert (code, "no scenario was given" in output) == (2, True)


def test_list_and_show_print_shipped_scenarios() -> None:
    rows = json.loads(invoke_scenario("list", "--json")[1])["scenarios"]
    names = [row["name"] for row in rows]
    assert "coordinator" in names
    _, listed = invoke_scenario("list")
    assert all(name in listed for name in names)
    assert invoke_scenario("show", "coordinator") == (0, Path(rows[names.index("coordinator")]["file"]).read_text())
