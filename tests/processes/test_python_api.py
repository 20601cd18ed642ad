"""Sessions run by a program: the same teams and scripts as from a shell, without leftovers."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio

import coterie
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import SessionDirectory
from tests.processes.project_shell import PATIENCE, ProjectShell
from tests.processes.session_record import has_no_processes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectShell:
    """Working directory of the program."""
    monkeypatch.chdir(project)
    return ProjectShell(project)


def test_example_runs_its_team_and_leaves_nothing_running(place: ProjectShell) -> None:
    program = [sys.executable, "-P", str(EXAMPLES / "run_team.py"), "--script", str(EXAMPLES / "pair-script.yaml")]
    played = subprocess.run(
        [*program, "Write down what we need."], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (played.returncode, played.stderr) == (0, "")
    lines = played.stdout.splitlines()
    assert lines[0] == f"session {place.session.id}"
    assert "writer plans: Write a tent, a map and tea into notes.md." in lines
    assert lines[-1] == "notes.md names a tent, a map and tea, and was checked."
    assert lines[-2].startswith("completed after 5 turns for $0.")
    assert lines[-2].endswith(": main done, writer done, checker done")
    assert (place.project / "notes.md").read_text() == "- a tent\n- a map\n- tea\n"
    assert has_no_processes(place.session)


LIVE = """
main:
  - tools: [{Bash: {command: "while [ ! -e go ]; do sleep 0.05; done"}}]
  - {text: I have begun., signal: lead-waits}
  - {text: "I heard: {{last_user_text}}", tools: [{Bash: {command: "sleep 300"}}]}
  - {text: "You said: {{last_user_text}}", times: always}
scout:
  - tools: [{Bash: {command: "echo now > go"}}]
  - {until: lead-waits, text: Nobody is there.}
"""


@attrs.define(eq=False)
class Enough(Exception):
    """Raised when the program has seen the expected event."""

    result: coterie.SessionResult
    kinds: list[str]


async def test_program_answers_spawns_sends_is_cancelled_and_resumes(place: ProjectShell) -> None:
    (script := place.project.parent / "script.yaml").write_text(LIVE)
    program = _Program()
    with trio.fail_after(1.8 * PATIENCE):
        with trio.CancelScope() as scope:
            async with coterie.open_session("Go.", script=script, on_question=program.answer) as session:
                await program.use(session)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert find_root(SessionDirectory.find(session.id)) is None
        assert has_no_processes(SessionDirectory.find(session.id))
        assert set(program.asked) == {("main", "Bash"), ("scout", "Bash")}
        with pytest.raises(coterie.SessionOver):
            await session.send("main", "Are you there?")

        with pytest.raises(Enough) as enough:  # unchanged, and not in an exception group
            await _open_again(session.id, script)
    result, kinds = enough.value.result, enough.value.kinds
    assert (result.session, result.reason, result.text) == (session.id, "completed", "You said: Thanks.")
    assert (result.turns, result.error) == (1, None)
    assert (kinds[0], kinds[-1]) == ("started", "finished")
    assert "tool_started" not in kinds
    assert result.state("scout") == "done"


async def _open_again(id_: str, script: Path) -> None:
    async with coterie.open_session("Thanks.", session=id_[:18], script=script) as session:
        result = await session.wait()
        async with session.events() as events:
            raise Enough(result, [observed.kind async for observed in events if observed.agent == "main"])


@attrs.define(eq=False)
class _Program:
    """Reads events until the lead has the report of the agent that the program started."""

    asked: list[tuple[str, str]] = attrs.field(factory=list)

    async def answer(self, question: coterie.Question) -> coterie.Answer:
        """Allow once."""
        self.asked.append((question.agent, question.tool))
        return coterie.AllowOnce()

    async def use(self, session: coterie.LiveSession) -> None:
        """Send, spawn, and read until the lead has all messages."""
        with pytest.raises(coterie.RequestRefused, match="there is no 'mian'; did you mean main"):
            await session.send("mian", "Look out.")
        with pytest.raises(coterie.RequestRefused, match=r"No agent was started: .*did you mean explore"):
            await session.spawn("Look.", kind="explorer")
        receipt = await session.send("main", "Look out.")
        spawned = await session.spawn("Look.", name="scout")
        assert (spawned.name, spawned.incarnation) == ("scout", 1)
        unheard = {receipt.id, spawned.report}
        async with session.events() as events:
            async for observed in events:
                if observed.agent == "main" and observed.kind == "delivered":
                    unheard -= set(observed.members["ids"])
                is_allowed = observed.kind == "decided" and observed.members["verdict"] == "allowed"
                if observed.agent == "main" and is_allowed and not unheard:
                    return  # it sleeps
        raise AssertionError(f"the lead never received {unheard}")
