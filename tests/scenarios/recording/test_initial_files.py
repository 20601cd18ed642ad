"""The first content of files, with real ones in a real repository."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from coterie.scenarios.recording.initial_files import FILE_LIMIT, find_files
from coterie.scenarios.recording.transcript_turns import AgentTurns, RecordedResult, SeenFile
from tests.scenarios.recording.session_samples import agent_turns, call, reply_turn

BEGAN = 1_794_900_000.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path


def put(project: Path, name: str, content: str, at: float = BEGAN - 100) -> None:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (at, at))


def commit(project: Path, at: float) -> None:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"@{int(at)} +0000")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
        subprocess.run(("git", *words), cwd=project, check=True, env={**os.environ, **identity, **dates})  # noqa: S607 - as users do


def seen_file(project: Path, name: str, content: str, at: float) -> SeenFile:
    version = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    return SeenFile(path=project / name, version=version, at=at)


def worker(project: Path, tool: str, name: str, result: str, *seen: str) -> AgentTurns:
    """An agent that made one call about *name*, and had these contents of it in view."""
    made = agent_turns("worker", reply_turn(1, BEGAN + 5, call(tool, "c", file_path=name)))
    made.results["c"] = RecordedResult(text=result, is_error=False)
    made.seen_files += [seen_file(project, name, content, BEGAN + 6 + number) for number, content in enumerate(seen)]
    return made


def test_modified_file_is_taken_from_the_last_commit(project: Path) -> None:
    put(project, "src/a.py", "old\n")
    put(project, "gone.py", "was here\n")
    commit(project, BEGAN - 50)
    put(project, "src/a.py", "new\n", BEGAN + 10)
    (project / "gone.py").unlink()
    commit(project, BEGAN + 20)
    made = worker(project, "Edit", "src/a.py", "edited", "old\n", "new\n")
    found = find_files(project, BEGAN, {"worker": made})
    assert found.is_git
    assert found.first == {"src/a.py": "old\n", "gone.py": "was here\n"}
    assert found.last == {"src/a.py": "new\n"}
    assert not found.unknown


def test_modified_file_is_taken_from_a_complete_read(project: Path) -> None:
    """The version that was seen shows if the file ended with a newline."""
    put(project, "a.txt", "later\n", BEGAN + 10)
    made = worker(project, "Read", "a.txt", "     1\tone\n     2\ttwo", "one\ntwo\n")
    assert find_files(project, BEGAN, {"worker": made}).first == {"a.txt": "one\ntwo\n"}


def test_unknown_contents_get_a_remark(project: Path) -> None:
    put(project, "a.txt", "later\n", BEGAN + 10)
    made = worker(project, "Read", "a.txt", "     7\tpart", "the whole\n")
    made.replies[0].calls[0]["input"]["offset"] = 7
    found = find_files(project, BEGAN, {"worker": made})
    assert found.first == {}
    assert "the first content of a.txt is not known" in found.unknown[0]


def test_file_created_by_an_agent_is_not_initial(project: Path) -> None:
    put(project, "new.txt", "hello\n", BEGAN + 10)
    found = find_files(project, BEGAN, {"worker": worker(project, "Write", "new.txt", "wrote", "hello\n")})
    assert (found.first, found.last, found.unknown) == ({}, {"new.txt": "hello\n"}, [])


def test_file_changed_after_the_session_has_no_expectation(project: Path) -> None:
    put(project, "new.txt", "mine\n", BEGAN + 10)
    found = find_files(project, BEGAN, {"worker": worker(project, "Write", "new.txt", "wrote", "hello\n")})
    assert not found.last
    assert "new.txt was changed after the agents wrote it" in found.unknown[0]


def test_secrets_large_and_binary_files_are_omitted(project: Path) -> None:
    put(project, ".env", "TOKEN=1\n")
    put(project, "large.txt", "x" * (FILE_LIMIT + 1))
    (project / "image.png").write_bytes(b"\x89PNG\x00\xff")
    os.utime(project / "image.png", (BEGAN - 9, BEGAN - 9))
    found = find_files(project, BEGAN, {})
    assert not found.first
    assert sorted(line.split(":")[0] for line in found.unknown) == [
        ".env is omitted",
        "image.png is omitted",
        "large.txt is omitted",
    ]
