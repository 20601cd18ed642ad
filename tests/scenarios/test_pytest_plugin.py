"""The pytest plugin in a separate project: without a key and without other settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = """
name: greeting
about: A lead says hello.
model: opus
permission_mode: acceptEdits
task: Say hello, and write it down.
script:
  main:
    - tools: [{Write: {file_path: hello.txt, content: "Hello.\\n"}}]
    - text: Hello.
expect:
  - exit_code: 0
  - file: {path: hello.txt, equals: "Hello.\\n"}
"""
FAILS = PASSES.replace("name: greeting", "name: missing").replace("path: hello.txt, equals", "path: bye.txt, equals")
BROKEN = PASSES.replace("exit_code", "exit_cod")
# Only of an editable install: pytest takes parts of the paths in its list of files for modules.
REWRITING = ("-W", "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = "main:\n  - text: hello\n"


def run(project: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run pytest in *project* with warnings as errors; return its status and output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "PYTEST_"))}
    environment = {**kept, **variables}
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *REWRITING, *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "scenarios").mkdir()
    return tmp_path


def put(project: Path, name: str, content: str) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_each_file_is_a_test_and_failures_name_line_and_command(project: Path) -> None:
    """Two processes of pytest play them; a fixture plays the first with a seed of its own."""
    put(project, "scenarios/deep/greeting.yaml", PASSES)
    put(project, "scenarios/missing.yaml", FAILS)
    put(project, "scenarios/words.yaml", SCRIPT)
    put(
        project,
        "test_team.py",
        """
def test_it(scenario):
    outcome = scenario("deep/greeting.yaml", seed=3)
    assert outcome.passed, str(outcome)
    assert outcome.seed == 3
    assert outcome.files == {"hello.txt": "Hello.\\n"}
    assert [each.members["name"] for each in outcome.events if each.kind == "tool_started"] == ["Write"]

def test_missing(scenario):
    scenario("nothing.yaml")
""",
    )
    status, said = run(project, "--coterie-scenarios", "scenarios", "--coterie-seed", "7", "-n", "2", "-v")
    assert status == 1
    assert "2 failed, 2 passed" in said
    assert "scenarios/deep/greeting.yaml::greeting" in said
    assert "there is no file nothing.yaml" in said
    where = project / "scenarios/missing.yaml"
    assert f"{where}, line 13: the file bye.txt is missing" in said
    assert f"again: coterie scenario run {where} --seed 7 --keep" in said
    assert "Traceback" not in said
    assert "runner/" not in said


def test_a_file_that_cannot_be_used_is_an_error_with_its_line(project: Path) -> None:
    put(project, "scenarios/broken.yaml", BROKEN)
    status, said = run(project, "--coterie-scenarios", "scenarios")
    assert status == 2
    assert "broken.yaml, line 12: " in said
    assert "did you mean 'exit_code'?" in said
    assert "Traceback" not in said


def test_scenarios_are_collected_by_name_and_mark(project: Path) -> None:
    put(project, "scenarios/greeting.yaml", PASSES)
    put(project, "other/missing.yaml", FAILS)
    put(project, "unit/test_one.py", "def test_one(): pass\n")
    options = ("--coterie-scenarios", "scenarios", "--coterie-scenarios", "other", "--collect-only", "-q")
    _, said = run(project, "unit", *options, "-m", "coterie_scenario")
    assert said.splitlines()[:2] == ["scenarios/greeting.yaml::greeting", "other/missing.yaml::missing"]
    assert "2/3 tests collected (1 deselected)" in said


def test_a_project_without_scenarios_does_not_pay_for_them(project: Path) -> None:
    """The plugin is loaded in every pytest run where Coterie is installed."""
    put(project, "scenarios/greeting.yaml", PASSES)
    put(
        project,
        "test_one.py",
        """
import sys

def test_nothing_is_imported():
    assert "coterie.scenarios.pytest_plugin" in sys.modules
    ours = sorted(name for name in sys.modules if name.startswith("coterie"))
    assert ours == ["coterie", "coterie.scenarios", "coterie.scenarios.pytest_plugin"]
    assert not {"trio", "anthropic", "attrs", "msgspec", "yaml"} & set(sys.modules)
""",
    )
    # Other plugins bring libraries along, so ours is alone here.
    status, said = run(project, "-p", "coterie.scenarios.pytest_plugin", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert status == 0, said
