import stat
from pathlib import Path

import msgspec
import pytest

from coterie.clock import Clock
from coterie.session_directory import SessionDirectory, project_slug


def test_session_directory_is_private_to_owner(tmp_path: Path, home: Path) -> None:
    sessions = [SessionDirectory.create(tmp_path, Clock(), task="t", model="m") for _ in range(2)]
    assert len({session.directory for session in sessions}) == 2
    for session in sessions:
        assert session.directory.parent == home / "projects" / project_slug(tmp_path) / "sessions"
        assert stat.S_IMODE(session.directory.stat().st_mode) == 0o700
        facts = msgspec.json.decode((session.directory / "session.json").read_bytes())
        assert (facts["v"], facts["id"], facts["project"]) == (1, session.id, str(tmp_path))
        assert session.agent_directory("main").is_dir()


@pytest.mark.usefixtures("home")
def test_session_ids_sort_by_start(tmp_path: Path) -> None:
    clock = Clock()
    first = SessionDirectory.create(tmp_path, clock, task="t", model="m")
    clock.advance(1)
    assert first.id < SessionDirectory.create(tmp_path, clock, task="t", model="m").id


@pytest.mark.parametrize(("path", "name"), [("/home/me/my.app", "-home-me-my-app"), ("/a_b/c d", "-a-b-c-d")])
def test_project_slug_is_its_path(path: str, name: str) -> None:
    assert project_slug(Path(path)) == name
