"""What a shell offers for `coterie`."""

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from coterie.clock import Clock
from coterie.orchestrator.cli.main import main
from coterie.orchestrator.session import Session


def offered(words: list[str], incomplete: str) -> list[str]:
    shell = ShellComplete(main, {}, "coterie", "_COTERIE_COMPLETE")
    return [item.value for item in shell.get_completions(words, incomplete)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))


def test_sessions_are_offered_the_newest_first(tmp_path: Path) -> None:
    clock, ids = Clock(), []
    for _ in range(2):
        ids.append(Session.create(tmp_path, clock, task="t", model="m").id)
        clock.advance(60)
    assert offered(["resume"], "") == offered(["logs"], "20") == ids[::-1]
    assert offered(["resume"], ids[0]) == [ids[0]]


def test_kinds_of_agents_and_models_are_offered() -> None:
    assert offered(["run", "--agent"], "w") == ["worker"]
    assert offered(["run", "--model"], "so") == ["sonnet"]


def test_a_command_is_offered() -> None:
    assert offered([], "res") == ["resume"]
    assert offered(["hooks"], "") == ["approve", "list"]
