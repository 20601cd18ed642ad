"""`coterie memory` over the memories of a project, of an agent, and of any directory."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.clock import Clock
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.orchestrator.cli.command_runner import coterie, printed, refusal

run = partial(coterie, "memory")
rows = partial(printed, "memory")
check = partial(coterie, "memory", "check")
AGENT = Author(by="agent", agent="main", session="20260101-000000-abcdef", turn=3, why="the user said so")
DREAM = Author(by="dream", why="put in order")


def text(name: str, body: str, *, description: str = "", type_: str = "project") -> bytes:
    about = description or f"What {name} is about."
    return f"---\nname: {name}\ndescription: {about}\ntype: {type_}\n---\n\n{body}\n".encode()


@pytest.fixture(autouse=True)
def project(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a checkout in which a kind of agent keeps memories."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (checkout / ".coterie/agents").mkdir(parents=True)
    definition = "---\nname: reviewer\ndescription: Reviews.\nmemory: project\n---\nReview.\n"
    (checkout / ".coterie/agents/reviewer.md").write_text(definition)
    return checkout


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    directory = tmp_path / "memory"
    monkeypatch.setenv("COTERIE_MEMORY_DIR", str(directory))
    store = MemoryStore.at(directory, Clock())
    store.write("build.md", text("build", "The nightly build runs on the small machine."), AGENT, base=None)
    store.write("kim.md", text("Kim", "Kim likes short answers.", type_="user"), AGENT, base=None)
    store.write("trains.md", text("trains", "Tickets are bought by the office in Lyon."), AGENT, base=None)
    return store


def lengthen(store: MemoryStore) -> bytes:
    """Change kim.md from short to long answers; return the content before."""
    before = store.read("kim.md") or b""
    store.write("kim.md", before.replace(b"short", b"long"), AGENT, base=before)
    return before


def reviewer_memory(project: Path) -> MemoryStore:
    kept = MemoryStore.at(project / ".coterie/agent-memory/reviewer", Clock())
    kept.write("style.md", text("style", "Names first."), AGENT, base=None)
    return kept


def test_list_shows_each_memory_on_one_line_and_json_all_but_the_body(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["FILE", "TYPE", "AGE", "BYTES", "DESCRIPTION"]
    names = [" ".join(line.split()[:2]) for line in lines[1:]]
    assert names == ["build.md project", "kim.md user", "trains.md project"]
    assert lines[2].endswith("Kim: What Kim is about.")
    row = rows("list")[1]
    assert row.pop("modified") == pytest.approx((store.directory / "kim.md").stat().st_mtime)
    assert " ".join(row) == "path name type description bytes notes scope agent directory"
    assert (row["path"], row["name"], row["type"], row["scope"]) == ("kim.md", "Kim", "user", "auto")
    assert (row["bytes"], row["directory"]) == (len(store.read("kim.md") or b""), str(store.directory))


def test_list_of_an_empty_memory_creates_nothing(tmp_path: Path) -> None:
    done = run("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert rows("list") == rows("log") == []
    assert "skipped" not in run("recall", "--local", "staging port").stderr
    assert not (tmp_path / "home").exists()


def test_list_has_unreadable_memories_and_warns_of_a_long_index(store: MemoryStore) -> None:
    (store.directory / "binary.md").write_bytes(b"\0\1\2")
    (store.directory / "link.md").symlink_to("/etc/passwd")
    done = run("list")
    assert done.exit_code == 0
    assert "root:" not in done.output
    assert "binary.md" in done.output
    (store.directory / "MEMORY.md").write_text("- [x](build.md) — x\n" * 300)
    assert "300 lines" in run("list").stderr


def test_all_and_agent_options_list_memories_of_agent_types(store: MemoryStore, project: Path) -> None:
    reviewer_memory(project)
    found = [(row["scope"], row["agent"], row["path"]) for row in rows("list", "--all")]
    assert found[-1] == ("project", "reviewer", "style.md")
    assert len(found) == 4
    assert "reviewer" in run("list", "--all").stdout
    assert [row["path"] for row in rows("list", "--agent", "reviewer")] == ["style.md"]
    assert [row["path"] for row in rows("list", "--agent", "reviewer", "--scope", "project")] == ["style.md"]
    assert rows("list", "--agent", "reviewer", "--scope", "local") == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--scope", "user"], "--agent TYPE"),
        (["--scope", "auto", "--agent", "reviewer"], "--scope auto"),
        (["--dir", ".", "--agent", "reviewer"], "--dir"),
        (["--dir", "nowhere"], "nowhere"),
        (["--agent", "reviewr"], "did you mean reviewer"),
        (["--agent", "explore"], "explore"),
    ],
)
def test_wrong_memory_options_are_refused_in_one_line(arguments: list[str], reason: str) -> None:
    done = run("list", *arguments)
    assert done.exit_code == 2
    assert reason in done.stderr.splitlines()[-1]


def test_show_prints_a_memory_with_its_last_change_or_the_index(store: MemoryStore) -> None:
    for name in ("kim", "kim.md", "KIM"):
        lines = run("show", name).stdout.splitlines()
        assert lines[0] == "---"
        assert lines[-2] == "Kim likes short answers."
        assert "by agent main of 20260101-000000-abcdef, turn 3: the user said so" in lines[-1]
    shown = rows("show", "kim")
    assert shown["body"].strip() == "Kim likes short answers."
    assert shown["last_change"]["id"] == "2"
    assert "- [Kim](kim.md) — What Kim is about." in run("show").stdout.splitlines()
    assert rows("show")["text"] == store.index()
    assert refusal(run("show", "biuld")).endswith("'biuld'; did you mean build?")


def test_memories_cannot_control_the_terminal(store: MemoryStore) -> None:
    store.write("evil.md", text("evil", "a\x1b[2Jb", description="x\x1b]0;y\x07z"), AGENT, base=None)
    for arguments in (["list"], ["show", "evil"], ["diff"], ["log"], ["recall", "evil"]):
        assert "\x1b" not in run(*arguments).output


@pytest.mark.slow
def test_recall_falls_back_to_the_local_ranker(store: MemoryStore, tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    chosen = {"purpose": "recall", "text": json.dumps({"selected_memories": ["kim.md", "nobody.md", "build.md"]})}
    script.write_text(json.dumps({"main": [chosen, {"purpose": "recall", "text": "I cannot say."}]}))
    queries = "how shall I answer\nwho buys the tickets\n"
    done = run("recall", "--queries", "-", "--json", "--script", str(script), stdin=queries)
    assert done.exit_code == 0, done.output
    paths = [[memory["path"] for memory in json.loads(line)["memories"]] for line in done.stdout.splitlines()]
    assert (paths[0], paths[1][0]) == (["kim.md", "build.md"], "trains.md")
    assert done.stderr.startswith("the model could not choose: ")
    assert done.stderr.count("\n") == 1
    refused = run("recall", "x y", "--script", str(tmp_path / "nothing.yaml"))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_recall_answers_a_file_of_queries(tmp_path: Path) -> None:
    """Queries are plain lines or JSON; a link in the directory is reported and a binary file ignored."""
    memories = tmp_path / "plain"
    memories.mkdir()
    (memories / "a.md").write_text("The office in Lyon buys the tickets.")
    (memories / "b.md").write_text("The nightly build runs on the small machine.")
    (memories / "c.md").write_bytes(b"\0\xff")
    (memories / "d.md").symlink_to("d.md")
    queries = tmp_path / "queries"
    queries.write_text('tickets?\n\n{"query": "which \\"machine\\" builds", "gold": ["b"]}\nzebra\n')
    done = run("recall", "--json", "--local", "--dir", str(memories), "--queries", str(queries))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert run("recall").exit_code == run("recall", "x", "--queries", "-").exit_code == 2, "a query or a file"
    assert [answer["query"] for answer in answers] == ["tickets?", 'which "machine" builds', "zebra"]
    assert [answer["memories"][0]["path"] for answer in answers[:2]] == ["a.md", "b.md"]
    assert (done.stderr.count("\n"), str(memories / "d.md") in done.stderr) == (1, True)
    assert sorted(memories.iterdir()) == [memories / name for name in ("a.md", "b.md", "c.md", "d.md")]


def test_log_lists_changes_the_newest_first(store: MemoryStore) -> None:
    store.delete("trains.md", AGENT, base=store.read("trains.md") or b"")
    lines = run("log").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["4", "3", "2", "1"]
    assert "removed" in lines[0]
    assert [row["action"] for row in rows("log", "trains")] == ["removed", "added"]
    assert [row["id"] for row in rows("log", "-n", "1")] == ["4"]
    assert rows("log")[0]["author"] == attrs.asdict(AGENT)


def test_log_detects_changes_made_by_hand(store: MemoryStore) -> None:
    (store.directory / "kim.md").write_bytes(text("Kim", "Kim left."))
    assert [(row["author"]["by"], row["path"]) for row in rows("log", "-n", "1")] == [("outside", "kim.md")]
    assert "+Kim left." in run("diff", "4").stdout
    assert rows("diff")[0]["id"] == "3"
    assert run("undo", "4").exit_code == 0
    assert b"short answers" in (store.read("kim.md") or b"")
    (store.directory / "own.md").write_bytes(text("own", "Mine."))
    assert run("log").exit_code == run("undo").exit_code == 0
    assert "own.md" in store.paths()


def test_undo_restores_the_memory_and_can_be_undone(store: MemoryStore) -> None:
    before = lengthen(store)
    done = run("undo")
    assert done.exit_code == 0
    assert "undoes 4" in done.stdout
    assert store.read("kim.md") == before
    assert [row["path"] for row in rows("undo")] == ["kim.md"]
    assert b"long" in (store.read("kim.md") or b"")
    done = run("undo", "2")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), "the memory has changed since"
    assert done.stderr.startswith("Error: change 2 ")
    assert refusal(run("diff", "99")) == "unknown change '99'; the changes are 1 to 6"
    assert b"long" in (store.read("kim.md") or b"")


@pytest.mark.slow
def test_instructions_lists_loaded_texts_in_order(store: MemoryStore, project: Path, tmp_path: Path) -> None:
    (project / "CLAUDE.md").write_text("Be brief. @missing.md\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/CLAUDE.md").write_text("Be kind.\n")
    shown = rows("instructions", "--agent", "reviewer")
    parts = " ".join(f"{part['where']}/{part['what']}" for part in shown["loaded"])
    assert parts == (
        "system/prompt system/manual system/definition message/instructions message/instructions message/index"
    )
    directory = project / ".coterie"
    texts = directory / "agents/reviewer.md", tmp_path / "home/CLAUDE.md", project / "CLAUDE.md"
    assert [part["source"] for part in shown["loaded"]][2:-1] == [str(path) for path in texts]
    assert shown["loaded"][-1]["source"] == str(store.directory / "MEMORY.md")
    assert shown["loaded"][-1]["bytes"] == len(store.index().strip().encode())
    assert [row["source"] for row in shown["left_out"]] == [str(directory / "agent-memory/reviewer/MEMORY.md")]
    done = run("instructions")
    assert done.exit_code == 0
    assert "for all projects" in done.stdout


def test_snapshot_equals_the_memory_of_the_agent_type(project: Path) -> None:
    kept = reviewer_memory(project)
    kept.write("old.md", text("old", "Names last."), AGENT, base=None)
    assert run("snapshot", "--agent", "reviewer").exit_code == 0
    kept.delete("old.md", AGENT, base=kept.read("old.md") or b"")
    assert rows("snapshot", "--agent", "reviewer")["memories"] == ["style.md"]
    copy = MemoryStore.at(project / ".coterie/agent-memory-snapshots/reviewer", Clock())
    assert copy.paths() == ["style.md"]
    assert (copy.index(), copy.read("style.md")) == (kept.index(), kept.read("style.md"))
    assert run("snapshot").exit_code == 2


@pytest.fixture
def memories(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two memories, one with problems, and an index with a dead link and a missing entry."""
    directory = tmp_path / "memory"
    directory.mkdir()
    monkeypatch.setenv("COTERIE_MEMORY_DIR", str(directory))
    (project / "main.py").write_text("def run_all(): ...\n")
    (directory / "good.md").write_bytes(text("good", "Begin with `run_all()` in `main.py`."))
    (directory / "stale.md").write_bytes(text("stale", "Call `run_none()`, see `gone.py`; it broke yesterday."))
    (directory / "MEMORY.md").write_text("# Memory\n- [good](good.md) — good\n- [lost](lost.md) — lost\n")
    return directory


def found(*arguments: str) -> Any:
    return json.loads(check("--json", *arguments).stdout)


def test_check_of_a_clean_store_exits_0(memories: Path) -> None:
    (memories / "stale.md").unlink()
    (memories / "MEMORY.md").write_text("- [good](good.md) — good\n")
    done = check()
    assert done.exit_code == 0
    counts = "0 contradicted, 0 duplicate, 0 with dead claims; 0 of 2 claims about files and symbols are dead"
    assert done.stdout == f"pollution 0.0% of 1 memories: {counts}\nno problems\n"
    memories.rename(memories.with_name("moved"))
    memories.write_text("no directory")
    assert (check().exit_code, check().stderr.count("\n")) == (1, 1)


def test_check_lists_problems_by_file_with_the_pollution(memories: Path) -> None:
    done = check()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.partition(";")[0] for line in lines[:-2]] == [
        "stale.md: orphan: is not listed in MEMORY.md, so agents do not know it",
        "stale.md:7: relative date: says 'yesterday', which changes its meaning with the current date",
        "stale.md:7: dead claim: mentions `run_none()`, which does not exist in the project",
        "stale.md:7: dead claim: mentions `gone.py`, which does not exist in the project",
        "MEMORY.md:3: dead link: links to lost.md, which does not exist",
    ]
    assert lines[-2].startswith(
        "pollution 50.0% of 2 memories: 0 contradicted, 0 duplicate, 1 with dead claims; 2 of 4"
    )
    assert lines[-1] == "5 found"


def test_fix_repairs_the_index_in_one_undoable_change(memories: Path) -> None:
    before = (memories / "MEMORY.md").read_bytes()
    answer = found("--fix")
    assert {row["kind"] for row in answer["findings"] if row["fixed"]} == {"orphan", "dead_link"}
    index = (memories / "MEMORY.md").read_text()
    assert index == "# Memory\n- [good](good.md) — good\n- [stale](stale.md) — What stale is about.\n"
    assert sorted(path.name for path in memories.glob("*.md")) == ["MEMORY.md", "good.md", "stale.md"]
    change = MemoryStore.at(memories, Clock()).changes()[-1]
    assert (change.id, change.author.by, change.path) == (answer["change"], "user", "MEMORY.md")
    assert {row["kind"] for row in found()["findings"]} == {"relative_date", "dead_claim"}
    assert found("--fix")["change"] is None
    assert MemoryStore.at(memories, Clock()).changes()[-1] == change
    assert run("undo").exit_code == 0
    assert (memories / "MEMORY.md").read_bytes() == before
