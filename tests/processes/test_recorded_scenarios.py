"""Sessions that are run, recorded, and run again from the recording."""

import fcntl
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coterie.scenarios.command import scenario
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_scenario
from coterie.scenarios.runner.scenario_result import ScenarioResult, run_repeatedly
from coterie.scenarios.testing import run_file
from coterie.session_directory import SessionDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def places() -> Iterator[list[Path]]:
    """Directory for runs; deleted at the end."""
    kept: list[Path] = []
    yield kept
    for place in kept:
        shutil.rmtree(place)


def run_shipped(
    name: str, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[ScenarioResult, SessionDirectory]:
    """Run a shipped scenario, keep it, and switch to its home."""
    outcome = run_repeatedly(load_scenario(find_scenario(name)), 0, is_kept=True)
    assert outcome.directory is not None
    places.append(outcome.directory)
    assert outcome.passed, outcome.failures
    monkeypatch.setenv("COTERIE_HOME", str(outcome.directory / "home"))
    return outcome, SessionDirectory.find(outcome.sessions[0])


def record(*arguments: object) -> Result:
    return CliRunner().invoke(scenario, ["record", *map(str, arguments)])


def comparable(log: tuple[str, ...]) -> list[str]:
    """Return a log without dollars: which of several forks pays for the prefix is a race."""
    return [re.sub(r'cost_usd=\\"[0-9.]+', "cost_usd", line) for line in log if not line.startswith("cost: ")]


def check_round_trip(name: str, places: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, session = run_shipped(name, places, monkeypatch)
    path = tmp_path / f"{name}.yaml"
    done = record(session.id, "-o", path)
    assert (done.exit_code, done.stderr) == (0, "")
    text = path.read_text()
    for secret in (str(places[0]), session.id, str(Path.home()), "toolu_", "signature"):
        assert secret not in text
    again = run_file(path, 0)
    assert again.passed, str(again)
    assert comparable(again.log) == comparable(outcome.log)


SOAK_STORIES = ("fork-fan-out", "coordinator", "root-crash-and-resume", "worker-crash")


@pytest.mark.parametrize(
    "name", ["typo-in-recipient", *(pytest.param(name, marks=pytest.mark.soak) for name in SOAK_STORIES)]
)
def test_recorded_session_is_repeated(
    name: str, places: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_round_trip(name, places, tmp_path, monkeypatch)


def test_unfit_session_or_file_is_refused(places: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, session = run_shipped("fork-fan-out", places, monkeypatch)
    path = tmp_path / "fork-fan-out.yaml"
    assert record(session.id, "-o", path).exit_code == 0

    again = record(session.id, "-o", path)
    assert (again.exit_code, again.stderr) == (2, f"Error: the file {path} exists already; overwrite it with --force\n")
    assert record(session.id, "-o", path, "--force").exit_code == 0
    assert record(session.id, "-o", "-").stdout.startswith("# Recorded from a session of 4 agents")

    missing = record("1999")
    assert missing.exit_code == 2
    assert missing.stderr.startswith("Error: session: no session's id begins with '1999'; the newest is ")

    with (session.directory / "mail/main/reader.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = record(session.id, "-o", tmp_path / "other.yaml")
    assert running.exit_code == 2
    assert running.stderr.startswith(f"Error: session {session.id}: it is running; stop it with `coterie stop`")

    transcript = session.directory / "agents/style/transcript.jsonl"
    content = transcript.read_bytes()
    transcript.write_bytes(content.replace(b"Every line can", b"Every line cun"))
    damaged = record(session.id, "-o", tmp_path / "other.yaml")
    assert damaged.exit_code == 2
    assert re.fullmatch(rf"Error: {transcript}: the transcript is corrupt: .*line \d+.*\n", damaged.stderr)
    assert not (tmp_path / "other.yaml").exists()

    transcript.write_bytes(content[:-20])
    torn = record(session.id, "-o", tmp_path / "other.yaml")
    assert torn.exit_code == 0, torn.stderr
