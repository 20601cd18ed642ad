"""Sessions run by a program: the same teams and scripts as from a shell, without leftovers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import coterie
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import find_root
from coterie.scenarios.api_server.script.located_yaml import read_yaml
from coterie.scenarios.runner.environment import toml_text
from coterie.session_directory import SessionDirectory
from tests.processes.project_shell import PATIENCE, ProjectShell
from tests.processes.session_processes import has_no_processes

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


@attrs.frozen
class ShippedScenario:
    """One run of a shipped scenario."""

    place: ProjectShell
    told: Mapping[str, Any]

    @classmethod
    def load(cls, name: str, place: ProjectShell) -> "ShippedScenario":
        """Return the scenario of that *name*, to be run at *place*."""
        root = read_yaml((ROOT / f"scenarios/stories/{name}.yaml").read_text(), name)
        assert root is not None
        return cls(place, root.plain())

    def set_up(self) -> None:
        """Write its files in their initial state."""
        home = self.place.project.parent / "home"
        home.mkdir(exist_ok=True)
        (home / "settings.toml").write_text(toml_text(self.told.get("settings", {})))
        self.script.write_text(json.dumps(self.told["script"]))
        self.team.write_text(toml_text(self.told.get("team", {})))
        for path, text in self.told["workspace"]["files"].items():
            (self.place.project / path).parent.mkdir(parents=True, exist_ok=True)
            (self.place.project / path).write_text(text)

    @property
    def script(self) -> Path:
        """Script of the model."""
        return self.place.project.parent / "script.yaml"

    @property
    def team(self) -> Path:
        """File of its team."""
        return self.place.project.parent / "team.toml"

    def run_by_api(self) -> coterie.SessionResult:
        """Run its task from this program."""
        self.set_up()
        options: Any = {name: self.told.get(name) for name in ("coordinator", "model", "permission_mode")}
        team = self.team if "team" in self.told else None
        return coterie.run_sync(self.told["task"], script=self.script, team=team, **options)

    def run_by_shell(self) -> subprocess.CompletedProcess[str]:
        """Run its task from a shell."""
        self.set_up()
        flags = ["--coordinator"] if self.told.get("coordinator") else []
        flags += ["--team", str(self.team)] if "team" in self.told else []
        for name in ("model", "permission_mode"):
            if name in self.told:
                flags += [f"--{name.replace('_', '-')}", self.told[name]]
        command = ["run", self.told["task"], "--script", str(self.script), "--output-format", "json"]
        return self.place.coterie(*command, *flags)


MORE = ("coordinator", "fork-fan-out", "typo-in-recipient")
STORIES = ["plan-approved", *(pytest.param(name, marks=pytest.mark.soak) for name in MORE)]


@pytest.mark.parametrize("name", STORIES)
def test_shipped_scenario_ends_by_the_api_as_from_a_shell(name: str, place: ProjectShell) -> None:
    story = ShippedScenario.load(name, place)
    result = story.run_by_api()
    assert has_no_processes(SessionDirectory.find(result.session))
    shell = story.run_by_shell()
    said = json.loads(shell.stdout)
    assert (result.reason, result.text, result.turns) == (said["reason"], said["result"], said["turns"])
    assert (result.is_done, shell.returncode) == (True, 0)
    # Concurrent agents join in any order.
    assert set(result.agents) == set(read_overview(SessionDirectory.find(said["session_id"])).agents)
    assert {agent.state for agent in result.agents} == {"done"}


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


async def test_invalid_script_is_reported_with_its_line(place: ProjectShell) -> None:
    (place.project / "script.yaml").write_text("default:\n  - txt: Done.\n")
    with trio.fail_after(PATIENCE), pytest.raises(coterie.ConfigInvalid) as raised:
        async with coterie.open_session("Go.", script="script.yaml"):
            raise AssertionError("it has begun")
    assert raised.value.source == f"{place.project}/script.yaml, line 2"
    assert raised.value.reason == "default[1] has an unknown key 'txt'; did you mean 'text'?"
    assert not list(place.project.parent.glob("home/projects/*/sessions/*"))


@pytest.mark.soak
def test_detached_session_continues_and_its_process_is_reaped_by_the_next_start(place: ProjectShell) -> None:
    (script := place.project.parent / "script.yaml").write_text(
        'main: [{tools: [{Bash: {command: "sleep 300"}}]}, {text: Done.}]'
    )

    async def begin() -> str:
        async with coterie.open_session(
            "Go.", script=script, detached=True, permission_mode="bypassPermissions"
        ) as session:
            return session.id

    id_ = trio.run(begin)
    assert find_root(SessionDirectory.find(id_)) is not None
    assert place.coterie("stop", id_).returncode == 0
    assert coterie.run_sync("Go on.", session=id_, script=script).text == "Done."
