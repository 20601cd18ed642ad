"""Shell completion of `coterie`, also in real shells if they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete

from coterie.clock import Clock
from coterie.orchestrator.cli.command_tree import load_command_tree
from coterie.orchestrator.cli.main import main
from coterie.session_directory import SessionDirectory
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.session_writer import set_states


def offered(words: list[str], incomplete: str) -> list[str]:
    return [item.value for item in _items(words, incomplete)]


def explained(words: list[str], incomplete: str = "") -> dict[str, str | None]:
    return {item.value: item.help for item in _items(words, incomplete)}


def _items(words: list[str], incomplete: str) -> list[CompletionItem]:
    shell = ShellComplete(load_command_tree(main), {}, "coterie", "_COTERIE_COMPLETE")
    return list(shell.get_completions(words, incomplete))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sessions(tmp_path: Path) -> list[str]:
    """Ids of two sessions with rosters, the newest last."""
    clock, ids = Clock(), []
    for task in ("first: mend\tthe\nparser", "second, with a comma"):
        session = SessionDirectory.create(Path.cwd(), clock, task=task, model="m")
        set_states(session, main="idle", scout="ended")
        ids.append(session.id)
        clock.advance(60)
    return ids


def test_completion_offers_sessions_the_newest_first(sessions: list[str]) -> None:
    assert offered(["resume"], "") == offered(["logs"], "20") == sessions[::-1]
    assert offered(["resume"], sessions[0]) == [sessions[0]]
    tasks = "ended: second, with a comma", "ended: first: mend the parser"
    assert explained(["resume"]) == dict(zip(sessions[::-1], tasks, strict=True))


def test_completion_follows_new_and_deleted_definitions(tmp_path: Path) -> None:
    assert offered(["run", "--agent"], "zo") == []
    file = tmp_path / "agents" / "zoologist.md"
    file.parent.mkdir()
    file.write_text("---\nname: zoologist\ndescription: Knows\n  animals.\n---\nGo.\n")
    assert explained(["run", "--agent"], "zo") == {"zoologist": "Knows animals."}
    file.unlink()
    assert offered(["run", "--agent"], "zo") == []


def test_completion_offers_agents_of_the_named_session(sessions: list[str]) -> None:
    assert offered(["stop", sessions[0]], "") == ["main"]
    assert explained(["mail", "send", "--to"]) == {"main": "idle", "scout": "ended"}
    assert offered(["logs", sessions[0], "--agent"], "sc") == ["scout"]
    assert offered(["mail", "send", "--session", "nowhere", "--to"], "") == []
    for roster in ("", "[]", '{"members":[]}', '{"members":{"a":7}}'):
        for path in Path(os.environ["COTERIE_HOME"]).rglob("roster.json"):
            path.write_text(roster)
        assert offered(["stop", sessions[0]], "") == []


def test_completion_offers_commands_options_choices_agent_types_and_models() -> None:
    assert offered(["run", "--agent"], "w") == ["worker"]
    assert offered(["run", "--model"], "so") == ["sonnet"]
    assert offered([], "res") == ["resume"]
    assert offered(["hooks"], "") == ["approve", "list"]
    assert offered(["mail"], "se") == ["send"]
    assert "--session" in offered(["mail", "send"], "--")
    assert offered(["completion"], "f") == ["fish"]
    assert "worker-crash" in offered(["scenario", "run"], "worker")
    assert offered(["scenario", "run"], "./x") == ["./x"]


def test_the_tree_offers_what_the_commands_themselves_would() -> None:
    whole, tree = (ShellComplete(each, {}, "coterie", "X") for each in (main, load_command_tree(main)))
    paths: list[list[str]] = [[]]
    for path in paths:
        for beginning in ("", "-"):
            told = [item.value for item in whole.get_completions(path, beginning) if item.type == "plain"]
            assert [i.value for i in tree.get_completions(path, beginning) if i.type == "plain"] == told, path
            names = told if not beginning and len(path) < 2 else []
            paths += [[*path, name] for name in names if name in _names(path)]
    assert len(paths) > 50


def _names(path: list[str]) -> list[str]:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command.list_commands(click.Context(command)) if isinstance(command, click.Group) else []


def test_a_damaged_cache_is_written_again(tmp_path: Path) -> None:
    assert offered([], "res") == ["resume"]
    [file] = (tmp_path / "cache/coterie/completion").glob("commands-*.json")
    for content in (b"", b"{}", b'{"version": 1, "stand": ""}', file.read_bytes()[:-20]):
        file.write_bytes(content)
        assert offered([], "res") == ["resume"]
    file.parent.chmod(0o500)
    file.unlink(missing_ok=True)
    assert offered([], "res") == ["resume"]


@pytest.mark.slow
def test_a_tab_imports_neither_the_sdk_nor_trio(sessions: list[str]) -> None:
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from coterie.orchestrator.cli.main import main; main()"
    )
    imported: list[set[str]] = []
    for words in ("coterie run --agent", "coterie run --agent", "coterie mail send --to"):
        position = {"COMP_WORDS": f"{words} ", "COMP_CWORD": str(len(words.split()))}
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            env={**os.environ, "_COTERIE_COMPLETE": "zsh_complete", **position},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip()
        imported.append(set(done.stderr.split()))
    # The first tab fills the cache.
    assert {"anthropic", "trio", "rich", "yaml"}.isdisjoint(imported[1] | imported[2])


def _shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"the shell {name} is not installed; install the package {name}")
    return found


def _run(shell: list[str], script: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        shell, input=script, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_bash_completes(sessions: list[str]) -> None:
    script = """
eval "$(coterie completion bash)"
press_tab() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _coterie_completion coterie
  echo "${COMPREPLY[*]}"
}
press_tab coterie resume ""
press_tab coterie mail send --to m
press_tab coterie run --agent wor
press_tab coterie sto
complete -p coterie
"""
    lines = _run(["bash", "--norc"], script).splitlines()
    assert lines[:4] == [f"{sessions[1]} {sessions[0]}", "main", "worker", "stop"]
    assert "_coterie_completion" in lines[4]


@pytest.mark.slow
def test_fish_completes_with_descriptions(sessions: list[str]) -> None:
    fish = _shell("fish")
    script = "coterie completion fish | source\n" + "".join(
        f"complete -C '{line}'\necho -\n"
        for line in ("coterie resume ", "coterie mail send --to m", "coterie run --agent wor", "coterie sto")
    )
    resumed, to, kind, command, _ = _run([fish, "--no-config"], script).split("-\n")
    assert resumed.splitlines() == [
        f"{sessions[1]}\tended: second, with a comma",
        f"{sessions[0]}\tended: first: mend the parser",
    ]
    assert to == "main\tidle\n"
    assert kind.startswith("worker\tCarries out one delegated task")
    assert command.startswith("stop\t")


@pytest.mark.slow
def test_zsh_completes_with_descriptions(sessions: list[str]) -> None:
    """Candidates are printed as zsh receives them, because zsh shows them only at a terminal."""
    zsh = _shell("zsh")
    script = """
compdef() { registered=$*; }
compadd() { print -rl -- $completions; }
_describe() { print -rl -- $completions_with_descriptions; }
eval "$(coterie completion zsh)"
print -r -- $registered
press_tab() { words=("$@") CURRENT=$#; _coterie_completion; print -r -- --; }
press_tab coterie resume ""
press_tab coterie mail send --to m
press_tab coterie run --agent wor
press_tab coterie run --model so
"""
    registered, rest = _run([zsh, "-f"], script).split("\n", 1)
    resumed, to, kind, model, _ = rest.split("--\n")
    assert registered == "_coterie_completion coterie"
    assert resumed.splitlines() == [
        f"{sessions[1]}:ended: second, with a comma",
        f"{sessions[0]}:ended: first: mend the parser",
    ]
    assert to == "main:idle\n"
    assert kind.startswith("worker:Carries out one delegated task")
    assert model == "sonnet\n"


def test_an_unknown_shell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "'tcsh'; give one of bash, zsh, fish" in coterie("completion").stderr
