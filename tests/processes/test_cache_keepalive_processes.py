"""Waiting agents keep their prefix in the cache: real processes with a shared clock."""

from pathlib import Path
from typing import Any

import pytest
import trio

from coterie.clock import CLOCK_FILE_VARIABLE, Clock
from coterie.orchestrator.gateway.ledger import LEDGER, read_ledger
from tests.processes.root_harness import RootHarness, open_root_harness

pytestmark = pytest.mark.slow

SCRIPT = """
boss:
  - tools: [CALLS]
  - {text: "I go on.", times: always}
  - {when: {purpose: refresh}, text: x, times: always}
default:
  - tools: [{Bash: {command: "until [ -e go ]; do sleep 0.01; done"}}]
  - {text: "a door"}
"""
CALL = "{Agent: {description: look, prompt: look, name: NAME, run_in_background: BACKGROUND}}"


def script(*names: str, in_background: bool) -> str:
    """Return a lead that starts agents of these *names*, which work until they may end."""
    call = CALL.replace("BACKGROUND", str(in_background).lower())
    return SCRIPT.replace("CALLS", ", ".join(call.replace("NAME", name) for name in names))


@pytest.mark.parametrize(
    ("calls", "stays", "turns_before"),
    [
        pytest.param(script("left", "right", in_background=False), False, 1, id="for its calls"),
        pytest.param(script("left", in_background=True), True, 2, id="as a teammate"),
    ],
)
async def test_a_waiting_agent_reads_its_prefix_back_from_the_cache(
    project: Path, calls: str, *, stays: bool, turns_before: int
) -> None:
    async with open_root_harness(project, calls) as tree, trio.open_nursery() as nursery:
        order = tree.agent_run("boss", "x" * 100_000, is_teammate=stays)
        nursery.start_soon(tree.supervisor.run_agent, order)
        await until_asked(tree, "boss", "turn", turns_before)
        await tree.until_state("left", "running")
        let_pass(tree, 285)
        await until_asked(tree, "boss", "refresh", 1)
        let_pass(tree, 200)
        (project / "go").touch()
        await until_asked(tree, "boss", "turn", turns_before + 1)
        before, after = usages(tree, "boss", "turn")[turns_before - 1 : turns_before + 1]
        cached = before["cache_read_input_tokens"] + before["cache_creation_input_tokens"]
        assert cached > 20_000
        assert after["cache_read_input_tokens"] == cached
        lines = read_ledger(tree.session.directory / LEDGER).lines
        refreshes = [(line.agent, line.usage.read, line.is_estimated) for line in lines if line.purpose == "refresh"]
        assert refreshes == [("boss", cached, False)], "one for all that it waits for"
        nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clock shared by all processes."""
    monkeypatch.setenv(CLOCK_FILE_VARIABLE, str(tmp_path / "clock"))


def let_pass(tree: RootHarness, seconds: float) -> None:
    """Advance the clock of the server, which is in this process, and that of the session."""
    tree.served.clock.advance(seconds)
    Clock.from_environment().advance(seconds)


def usages(tree: RootHarness, agent: str, purpose: str) -> list[dict[str, Any]]:
    """Return the usage by the server's log."""
    return [e["usage"] for e in tree.served.requests if (e["agent"], e["purpose"]) == (agent, purpose)]


async def until_asked(tree: RootHarness, agent: str, purpose: str, count: int) -> None:
    """Return when the model of *agent* has answered *count* calls of that *purpose*."""
    while len(usages(tree, agent, purpose)) < count:  # noqa: ASYNC110 - the simplest reader there is
        await trio.sleep(0.005)
