"""Third part of the demo: the shipped coordinator scenario on the live board."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.expectations import CommandEnds, FileIs
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.scenarios.runner.scenario import Scenario

PACE = 0.5
"""Seconds that each reply takes, so that a person can follow the board; none for a program."""


def coordinator_scenario() -> Scenario:
    """What is played."""
    return load_scenario(find_scenario("coordinator"))


def run_coordinator(story: Scenario, *, as_json: bool) -> dict[str, Any]:
    """Run the team of *story* in its own repository; its output is ours, or comes back *as_json*.

    Raises `RuntimeError` unless the repository is afterwards as the story wants it.
    """
    with open_environment(story, 0, is_kept=False) as stage:
        if not as_json:
            stage.script.write_text(_paced(story.script))
        shown = ("--output-format", "json") if as_json else ("--live",)
        command = [sys.executable, "-P", "-m", "coterie", "run", story.task, *story.options]
        done = subprocess.run(  # noqa: S603 - our own program
            [*command, "--script", str(stage.script), *shown],
            cwd=stage.project,
            env=dict(stage.variables),
            stdout=subprocess.PIPE if as_json else None,
            text=True,
            check=False,
        )
        wrong = _first_problem(story, stage.project)
    if done.returncode or wrong:
        raise RuntimeError(wrong or f"the team has not done its task (exit code {done.returncode})")
    summary: dict[str, Any] = json.loads(done.stdout) if as_json else {}
    return summary


def _first_problem(story: Scenario, project: Path) -> str | None:
    """The first thing in *project* that is not as *story* wants its files and commands."""
    left = ScenarioRun(project=project, sessions=())
    wanted = (each for each in story.expectations if isinstance(each, FileIs | CommandEnds))
    return next((failure.reason for each in wanted for failure in each.check(left)), None)


def _paced(script: str) -> str:
    lanes: dict[str, list[Any]] = json.loads(script)
    paced = {name: [_with_pace(reply) for reply in replies] for name, replies in lanes.items()}
    return json.dumps(paced)


def _with_pace(reply: Any) -> dict[str, Any]:
    return {"delay": PACE, **(reply if isinstance(reply, dict) else {"text": reply})}
