"""Worktrees of real repositories: made, kept with any work, removed without, and never in doubt after a crash."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from coterie.agents.runtime.worktree import Worktree, find_unsaved_work
from coterie.clock import Clock
from coterie.git_command import GitFailed
from coterie.orchestrator.cli.main import main
from coterie.orchestrator.supervisor.worktree_lifecycle import (
    WORKTREE_RECORD,
    WorktreeFailed,
    open_worktree,
    read_worktree_record,
    release_worktree,
    remove_worktree,
)
from coterie.session_directory import SessionDirectory
from tests.orchestrator.supervisor.git_repositories import branches, commit, git, make_repository, shell, worktrees

pytestmark = pytest.mark.slow


@pytest.fixture
def project(home: Path, tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def session(project: Path) -> SessionDirectory:
    return SessionDirectory.create(project, Clock(), task="t", model="m")


def record_of(session: SessionDirectory) -> Path:
    return session.agent_directory("scout") / WORKTREE_RECORD


def assert_nothing_is_left(session: SessionDirectory, project: Path) -> None:
    assert worktrees(project) == []
    assert branches(project) == ["trunk"]
    assert [path.name for path in (project / ".coterie" / "worktrees").glob("*")] == [".gitignore"]
    assert not record_of(session).exists()


async def test_new_worktree_is_the_last_commit_unseen_by_the_main_checkout_without_hooks(
    session: SessionDirectory, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    (project / "readme.txt").write_text("not committed\n")
    (project / "new.txt").touch()
    before = git(project, "status", "--porcelain")
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    worktree = await open_worktree(session, "scout", project)
    assert worktree.directory == worktree.path == project / ".coterie" / "worktrees" / f"{session.id}-scout"
    assert (worktree.path / "readme.txt").read_text() == "hello\n"
    assert not (worktree.path / "new.txt").exists()
    assert git(worktree.path, "branch", "--show-current") == worktree.branch == f"coterie/{session.id}/scout"
    assert git(project, "status", "--porcelain") == before
    assert read_worktree_record(worktree.record) == worktree
    assert not (worktree.path / "hooked").exists()
    assert await find_unsaved_work(worktree) is None


COMMIT = "echo x > new.txt; git add new.txt; git commit --quiet --message x"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo changed > readme.txt", "1 changed file"),
        ("rm readme.txt", "1 changed file"),
        ("touch new.txt", "1 changed file"),
        ("touch ignored.log", "1 changed file"),
        (COMMIT, "1 commit"),
        (f"{COMMIT}; git reset --quiet --hard HEAD~1", "1 commit"),
        (f"git checkout --quiet --detach; {COMMIT}", "1 commit"),
        ("git update-index --assume-unchanged readme.txt; echo changed > readme.txt", "configured to skip some"),
        ("git worktree lock .", "it is locked"),
        # Git would answer for the checkout around it, in which nothing was changed.
        ("rm .git; touch new.txt", "is no longer a worktree"),
    ],
)
async def test_a_worktree_with_any_work_is_kept(
    session: SessionDirectory, project: Path, script: str, words: str
) -> None:
    git(project, "config", "status.showUntrackedFiles", "no")
    worktree = await open_worktree(session, "scout", project)
    shell(worktree.path, script)
    files = sorted(worktree.path.iterdir())
    said = await release_worktree(worktree)
    assert str(worktree.path) in said
    assert worktree.branch in said
    assert words in said
    assert sorted(worktree.path.iterdir()) == files
    assert worktree.branch in branches(project)
    assert await open_worktree(session, "scout", project) == worktree, "and is there again when the agent is"


async def test_worktree_removed_by_the_user_is_restored_from_its_branch(
    session: SessionDirectory, project: Path
) -> None:
    worktree = await open_worktree(session, "scout", project)
    commit(worktree.path, new="x")
    git(project, "worktree", "remove", str(worktree.path))
    assert await open_worktree(session, "scout", project) == worktree
    assert (worktree.path / "new.txt").read_text() == "x"


async def test_project_in_a_subdirectory_maps_to_that_subdirectory_of_the_worktree(
    session: SessionDirectory, project: Path
) -> None:
    below = project / "services" / "mail"
    below.mkdir(parents=True)
    with pytest.raises(WorktreeFailed, match="services/mail/ is not in the last commit"):
        await open_worktree(session, "scout", below)
    commit(below, main="x")
    worktree = await open_worktree(session, "scout", below)
    assert worktree.directory == worktree.path / "services" / "mail"
    assert (worktree.directory / "main.txt").read_text() == "x"
    assert worktree.path.parent == project / ".coterie" / "worktrees"
    (worktree.path / "new.txt").touch()
    assert await find_unsaved_work(worktree) == "1 changed file", "also outside of that directory"


async def test_many_worktrees_of_one_repository_are_made_and_removed_at_once(
    session: SessionDirectory, project: Path
) -> None:
    made: dict[str, Worktree] = {}

    async def use(name: str) -> None:
        made[name] = await open_worktree(session, name, project)
        if name == "agent-3":
            (made[name].path / "new.txt").touch()
        await release_worktree(made[name])

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(use, f"agent-{number}")
    assert worktrees(project) == [made["agent-3"].path.name]
    assert branches(project) == [made["agent-3"].branch, "trunk"]


async def test_worktree_is_refused_without_repository_commit_or_git(
    session: SessionDirectory, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorktreeFailed, match="not a git repository"):
        await open_worktree(session, "scout", tmp_path)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    with pytest.raises(WorktreeFailed, match="has no commit"):
        await open_worktree(session, "scout", tmp_path / "empty")
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(WorktreeFailed, match="git cannot be run"):
        await open_worktree(session, "scout", project)
    assert not record_of(session).exists()


async def test_existing_branch_or_file_of_the_same_name_is_kept(session: SessionDirectory, project: Path) -> None:
    branch = f"coterie/{session.id}/scout"
    git(project, "branch", branch)
    with pytest.raises(WorktreeFailed, match=f"the branch {branch} already exists"):
        await open_worktree(session, "scout", project)
    git(project, "branch", "--delete", branch)
    path = project / ".coterie" / "worktrees" / f"{session.id}-scout"
    path.mkdir(parents=True)
    with pytest.raises(WorktreeFailed, match="already exists"):
        await open_worktree(session, "scout", project)
    assert path.is_dir()
    assert branches(project) == ["trunk"]


async def test_programs_configured_by_an_agent_are_not_run(
    session: SessionDirectory, project: Path, tmp_path: Path
) -> None:
    """It can lead git to a repository of its own, whose configuration says how files are looked at."""
    worktree = await open_worktree(session, "scout", project)
    evil, ran = make_repository(tmp_path / "evil"), tmp_path / "ran"
    git(evil, "config", "filter.evil.clean", f"touch {ran}; cat")
    (worktree.path / ".gitattributes").write_text("* filter=evil\n")
    (worktree.path / "readme.txt").write_text("jello\n")
    (worktree.path / ".git").write_text(f"gitdir: {evil}/.git\n")
    git(worktree.path, "status", "--porcelain")
    assert ran.exists(), "whoever asks git there without care runs it"
    ran.unlink()
    with contextlib.suppress(GitFailed):  # it may no longer be a worktree
        await find_unsaved_work(worktree)
    assert not ran.exists()


def let_git_be_killed(project: Path, first: str = "true") -> None:
    """From now on, in the middle of a checkout, with all of its processes: as in a power cut."""
    (project / ".git" / "info" / "attributes").write_text("readme.txt filter=deadly\n")
    git(project, "config", "filter.deadly.smudge", f"{first}; kill -9 0")


async def test_killed_git_leaves_nothing_and_the_next_attempt_works(session: SessionDirectory, project: Path) -> None:
    let_git_be_killed(project)
    with pytest.raises(WorktreeFailed, match="git was killed by SIGKILL"):
        await open_worktree(session, "scout", project)
    assert_nothing_is_left(session, project)
    git(project, "config", "--unset", "filter.deadly.smudge")
    worktree = await open_worktree(session, "scout", project)
    assert (worktree.path / "readme.txt").read_text() == "hello\n"


OPENING = """
import os, sys, trio
from coterie.session_directory import SessionDirectory as Session
from coterie.orchestrator.supervisor.worktree_lifecycle import open_worktree
os.environ["OPENER"] = str(os.getpid())
session = Session.find(sys.argv[1])
trio.run(open_worktree, session, "scout", session.project)
"""


@pytest.fixture
def half_made(session: SessionDirectory, project: Path) -> None:
    """Return the files that remain when git and its caller are killed in the middle."""
    let_git_be_killed(project, "kill -9 $OPENER")
    done = subprocess.run([sys.executable, "-P", "-c", OPENING, session.id], check=False)
    assert done.returncode == -signal.SIGKILL
    git(project, "config", "--unset", "filter.deadly.smudge")
    half = read_worktree_record(record_of(session))
    assert half is not None
    assert half.stage == "making"
    assert "locked" in git(project, "worktree", "list", "--porcelain")


def test_doctor_removes_an_incomplete_worktree_of_a_killed_root(
    session: SessionDirectory, project: Path, half_made: None, runtime: Path
) -> None:
    done = CliRunner().invoke(main, ["doctor", "--session", session.id, "--fix"])
    assert "fixed: remove it and its branch" in done.stdout
    assert_nothing_is_left(session, project)
    assert CliRunner().invoke(main, ["doctor", "--session", session.id]).exit_code == 0


async def test_incomplete_worktree_of_a_killed_root_is_created_again(
    session: SessionDirectory, project: Path, half_made: None
) -> None:
    worktree = await open_worktree(session, "scout", project)
    assert await find_unsaved_work(worktree) is None
    assert (worktree.path / "readme.txt").read_text() == "hello\n"


async def test_interrupted_removal_is_finished_later(session: SessionDirectory, project: Path) -> None:
    worktree = await open_worktree(session, "scout", project)
    worktree.path.rename(worktree.aside)
    (worktree.aside / "readme.txt").unlink()
    assert (await open_worktree(session, "scout", project)) == worktree
    assert (worktree.path / "readme.txt").exists()
    assert not worktree.aside.exists()
    await remove_worktree(worktree)
    await remove_worktree(worktree)
    assert_nothing_is_left(session, project)


async def test_hung_git_is_killed_with_its_children(session: SessionDirectory, project: Path) -> None:
    (project / ".git" / "info" / "attributes").write_text("readme.txt filter=slow\n")
    begun = project / ".git" / "begun"
    git(project, "config", "filter.slow.smudge", f"touch {begun}; sleep 1000")
    with trio.move_on_after(10) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_worktree, session, "scout", project)
            while not begun.exists():  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert_nothing_is_left(session, project)
