"""Dreams of real processes: one at a time, and atomic when killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.memory.dreaming.dream_change import load_changes
from coterie.memory.dreaming.dream_lock import LOCK, acquire_dream_lock, last_dream_time
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.processes.dream_worker import AFTER, BEFORE, LAST
from tests.processes.project_shell import ProjectShell

ROOT = Path(__file__).parents[2]


@contextmanager
def open_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-P", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_output_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOLDER = """
import sys
from pathlib import Path
from coterie.clock import Clock
from coterie.memory.dreaming.dream_lock import acquire_dream_lock
from coterie.memory.errors import DreamRefused

print("ready", flush=True)
sys.stdin.readline()
try:
    acquire_dream_lock(Path(sys.argv[1]), Clock())
    print("held", flush=True)
except DreamRefused:
    print("refused", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_exactly_one_of_many_concurrent_dreams_runs(tmp_path: Path) -> None:
    with ExitStack() as stack:
        holders = [stack.enter_context(open_process("-c", HOLDER, str(tmp_path))) for _ in range(3)]
        assert [read_output_line(process) for process in holders] == ["ready"] * 3
        for process in holders:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [read_output_line(process) for process in holders]
        assert sorted(said) == ["held", "refused", "refused"]
        holder = holders[said.index("held")]
        assert last_dream_time(tmp_path, Clock()) == (tmp_path / LOCK).stat().st_mtime
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert last_dream_time(tmp_path, Clock()) is None
        acquire_dream_lock(tmp_path, Clock()).release()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "step"), [(1, 9), pytest.param(0, 1, marks=pytest.mark.soak, id="every write")])
def test_killed_dream_leaves_the_memory_before_or_after_it(tmp_path: Path, first: int, step: int) -> None:
    with open_process("-m", "tests.processes.dream_worker", str(tmp_path), str(first), str(step)) as worker:
        out, _ = worker.communicate(timeout=600)
        assert worker.returncode == 0
    fates = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert len(fates) > 5
    assert [status for _, status in fates] == [-signal.SIGKILL] * (len(fates) - 1) + [0]
    kept = [_read_result(tmp_path / str(writes)) for writes, _ in fates]
    assert kept[0] == (BEFORE, LAST)
    assert kept[-1][0] == AFTER
    assert kept[-1][1] != LAST


def _read_result(directory: Path) -> tuple[dict[str, str], float | None]:
    """Check that after the repair of the store, all of the dream or nothing is there."""
    store, clock = MemoryStore.at(directory / "memory", Clock()), Clock()
    last = last_dream_time(store.directory, clock)
    store.detect_external_changes()
    texts = {path: (store.read(path) or b"").decode() for path in store.paths()}
    assert texts in (BEFORE, AFTER)
    assert last == LAST or texts == AFTER
    assert {line.split("(")[1].split(")")[0] for line in store.index().splitlines() if line} == texts.keys()
    # The kept change must be readable, and another dream must be possible.
    assert len(load_changes(store.directory)) == len(list(store.directory.glob(".history/dreams/[!.]*.json")))
    acquire_dream_lock(store.directory, clock).release()
    return texts, last


def likes(name: str, drink: str) -> str:
    return f"---\nname: {name}\ndescription: {name}\ntype: user\n---\n{name} likes {drink}.\n"


ANN, BEN = likes("ann", "tea"), likes("ben", "coffee")


def write(path: str, text: str) -> str:
    content = json.dumps(text)
    return f"{{Write: {{file_path: '{{{{match.1}}}}/{path}', content: {content}}}}}"


def script(*calls: str) -> str:
    """Return a dream that makes *calls* in its working copy, whose path it reads from its prompt."""
    copy = "/`([^`]+)` contains a copy/"
    reads = ", ".join(f"{{Read: {{file_path: '{{{{match.1}}}}/{path}'}}}}" for path in ("ann.md", "ben.md"))
    return f"""
default:
  - {{when: {{purpose: dream, turn: 1, last_user_text: "{copy}"}}, tools: [{reads}]}}
  - {{when: {{purpose: dream, turn: 2, last_user_text: "{copy}"}}, tools: [{", ".join(calls)}]}}
  - {{when: {{purpose: dream}}, text: Done.}}
"""


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectShell:
    """A project with two memories."""
    monkeypatch.setenv("COTERIE_MEMORY_DIR", str(project.parent / "memory"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    store = MemoryStore.at(project.parent / "memory", Clock())
    for path, text in (("ann.md", ANN), ("ben.md", BEN)):
        store.write(path, text.encode(), Author(by="user"), base=None)
    return ProjectShell(project)


def memories(place: ProjectShell) -> dict[str, str]:
    store = MemoryStore.at(place.project.parent / "memory", Clock())
    return {path: (store.read(path) or b"").decode() for path in store.paths()}


@pytest.mark.slow
def test_manual_dream_is_shown_approved_and_undone(place: ProjectShell) -> None:
    model = place.model(script(write("ann.md", ANN + "She sings.\n"), write("ben.md", "")))
    done = place.coterie("memory", "dream", *model)
    assert done.returncode == 0, done.stderr
    assert "ann.md:7: addition, applied" in done.stdout
    assert "ben.md:1, the whole file: deletion, waiting" in done.stdout
    assert "would be lost: ben likes coffee." in done.stdout
    assert "evidence: none" in done.stdout
    assert memories(place) == {"ann.md": f"{ANN}She sings.\n", "ben.md": BEN}
    assert not list(place.project.parent.glob("home/projects/*/sessions/*/agents/*/dream"))
    [listed] = json.loads(place.coterie("memory", "dream", "--list", "--json").stdout)
    assert listed["session"] == place.session.id
    applied = place.coterie("memory", "dream", "--apply")
    assert applied.returncode == 0, applied.stderr
    assert memories(place) == {"ann.md": f"{ANN}She sings.\n"}
    undone = place.coterie("memory", "undo", listed["group"])
    assert undone.returncode == 0, undone.stderr
    assert memories(place) == {"ann.md": ANN, "ben.md": BEN}
