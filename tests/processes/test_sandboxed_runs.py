"""Sandboxes in real runs: escapes fail, and commands do not run without the configured sandbox."""

import os
from pathlib import Path
from typing import get_args

import pytest

from coterie.agents.events.agent_events import RunStarted
from coterie.agents.sandbox.backends import SandboxBackend
from coterie.orchestrator.events.session_reader import read_session
from tests.agents.sandbox.local_listeners import CALLER, open_listeners
from tests.agents.sandbox.sandboxed_workspace import PYTHON, needs
from tests.orchestrator.supervisor.git_repositories import git, make_repository
from tests.processes.project_shell import BYPASS, ProjectShell

pytestmark = pytest.mark.slow

ESCAPES = """
default:
  - tools:
      - Bash: {{command: "{attack}"}}
  - tools:
      - Bash: {{command: "{attack}; mkfifo over; echo > over", run_in_background: true}}
  - tools:
      - Bash: {{command: "until [ -e over ]; do sleep 0.05; done; cat over"}}
  - tools:
      - BashOutput: {{bash_id: bash_1}}
  - text: I could not.
"""


@pytest.fixture(params=get_args(SandboxBackend))
def way(request: pytest.FixtureRequest) -> SandboxBackend:
    wanted: SandboxBackend = request.param
    needs(wanted)
    return wanted


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectShell:
    """Home with a key of the user."""
    user = project.parent / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh/id").write_text("a secret")
    monkeypatch.setenv("HOME", str(user))
    return ProjectShell(project)


def test_sandboxed_command_cannot_write_outside_or_connect(
    place: ProjectShell, way: SandboxBackend, runtime: Path
) -> None:
    outside, key = place.project.parent / "outside", place.project.parent / "user/.ssh/id"
    outside.write_text("as it was")
    (place.project / "call.py").write_text(CALLER)
    with open_listeners(runtime) as listeners:
        calls = f"{PYTHON} -I call.py {' '.join(map(str, listeners.addresses()))}"
        files = f"echo x > {outside}; cat {key}; cat {place.project.parent}/home/projects/*/sessions/*/session.json"
        sockets = f"for s in {runtime}/coterie/*; do {PYTHON} -I call.py 1 1 $s x; done"
        script = ESCAPES.format(attack=f"echo inside >> here; {files}; {calls}; {sockets}")
        done = place.coterie("run", "try it", "--sandbox", way, *BYPASS, *place.model(script))
        assert listeners.reached() == set()
    assert (done.returncode, done.stdout) == (0, "I could not.\n")
    assert outside.read_text() == "as it was"
    assert (place.project / "here").read_text() == "inside\n" * 2
    heard = "\n".join(place.texts())
    assert "a secret" not in heard
    assert '"task"' not in heard
    assert "unix called" not in heard
    assert heard.count("tcp refused") >= 2


def test_started_agents_have_the_sandbox_of_their_parent(place: ProjectShell) -> None:
    """A subagent, one in a worktree, and a fork; each commits, and none writes files of another."""
    needs("bubblewrap")
    place.project.rmdir()
    make_repository(place.project)
    place.write("../home/settings.toml", 'sandbox = "bubblewrap"\n')
    here = place.project
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m"
    show = "git log -1 --format=is-%s"
    script = f"""
main:
  - tools: [{{Agent: {{description: "d", prompt: "p", subagent_type: worker, name: sub}}}}]
  - tools: [{{Agent: {{description: "d", prompt: "p", subagent_type: worker, name: apart, isolation: worktree}}}}]
  - tools: [{{Agent: {{description: "d", prompt: "p", subagent_type: fork, name: forked}}}}]
  - {{text: All done., times: always}}
sub:
  - tools: [{{Bash: {{command: "echo sub > $COTERIE_SCRATCH/sub; echo x > {here.parent}/by-sub; {commit} sub"}}}}]
  - text: did
apart:
  - tools: [{{Bash: {{command: "cat $COTERIE_SCRATCH/sub; echo x > {here}/by-apart; {commit} apart && {show}"}}}}]
  - text: did
forked:
  - tools: [{{Bash: {{command: "cat $COTERIE_SCRATCH/sub; echo x > {here.parent}/by-forked; {commit} forked"}}}}]
  - text: did
"""
    done = place.coterie("run", "begin", *BYPASS, *place.model(script))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "All done."), done.stderr
    told = list(read_session(place.session.directory))
    held = {observed.agent: observed.event.sandbox for observed in told if isinstance(observed.event, RunStarted)}
    assert held == dict.fromkeys(("main", "sub", "apart", "forked"), "bubblewrap")
    assert not [*here.parent.glob("by-*"), *here.glob("by-*")]
    assert any("is-apart" in text for text in place.texts("apart"))
    assert git(here, "log", "--format=%s").split()[:2] == ["forked", "sub"]


def test_a_session_stays_in_its_sandbox(place: ProjectShell) -> None:
    needs("landlock")
    script = "default:\n  - text: one\n  - tools: [{Bash: {command: 'echo x > ../outside'}}]\n  - text: two\n"
    place.coterie("run", "first", "--sandbox", "landlock", *BYPASS, *place.model(script))
    done = place.coterie("resume", place.session.id, "second", *BYPASS, *place.model(script))
    assert done.stdout.splitlines()[-1] == "two", done.stderr
    assert not (place.project.parent / "outside").exists()
    assert [event.sandbox for event in place.events(RunStarted)] == ["landlock"] * 2


def test_missing_sandbox_program_stops_all_commands(place: ProjectShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(place.project))
    script = "default:\n  - tools: [{Bash: {command: 'echo x > made'}}]\n  - text: done\n"
    done = place.coterie("run", "do it", "--sandbox", "bubblewrap", *BYPASS, *place.model(script))
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert 'command line: sandbox = "bubblewrap" is not available: the program bwrap is not installed' in line
    assert "install the package bubblewrap" in line
    assert not (place.project / "made").exists()
    assert not list(place.project.parent.glob("home/projects/*/sessions/*"))
