"""Tests of git in a sandbox: commits work, planted hooks and configuration do not."""

from pathlib import Path

import pytest

from coterie.agents.sandbox.backends import SandboxBackend
from coterie.agents.sandbox.sensitive_paths import Repository
from tests.agents.sandbox.sandboxed_workspace import SandboxedWorkspace, needs
from tests.orchestrator.supervisor.git_repositories import git

pytestmark = pytest.mark.slow

COMMIT = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 'from within' && git log -1 --format=%s"


def _beside(checkout: Path) -> Path:
    """Move *checkout* away and create a worktree in its place."""
    main = checkout.rename(checkout.parent / "main")
    git(main, "worktree", "add", "-q", "-b", "side", str(checkout))
    return main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    git(tmp_path / "project", "init", "-q", "-b", "main")
    git(tmp_path / "project", "commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path / "project"


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_commit_works_in_checkout(tmp_path: Path, checkout: Path, way: SandboxBackend) -> None:
    needs(way)
    place = SandboxedWorkspace.make(tmp_path, way)
    assert (await place.bash(f"echo x > file && git add file && {COMMIT}")).text == "from within"
    assert git(checkout, "log", "-1", "--format=%s") == "from within"


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_commit_works_in_worktree_and_repository_is_protected(
    tmp_path: Path, checkout: Path, way: SandboxBackend
) -> None:
    needs(way)
    main = _beside(checkout)
    place = SandboxedWorkspace.make(tmp_path, way)
    assert (await place.bash(COMMIT)).text == "from within"
    assert git(main, "log", "-1", "--format=%s", "side") == "from within"
    for planted in ("hooks/pre-commit", "config", "HEAD", "worktrees/planted"):
        assert (await place.bash(f"echo planted >> {main}/.git/{planted}")).is_error, planted
    assert (await place.bash(f"echo x > {main}/file")).is_error
    assert git(main, "status", "--short") == ""


@pytest.mark.parametrize(
    "trick",
    [
        "echo planted > .git/hooks/pre-commit",
        "echo planted >> .git/config",
        "git config core.fsmonitor planted",
        "mv .git gone && cp -r gone .git && echo planted > .git/hooks/pre-commit",
        "rm -rf .git/hooks && mkdir .git/hooks && echo planted > .git/hooks/pre-commit",
    ],
)
async def test_bubblewrap_prevents_planted_hooks_and_configuration(tmp_path: Path, checkout: Path, trick: str) -> None:
    needs("bubblewrap")
    place = SandboxedWorkspace.make(tmp_path, "bubblewrap")
    assert (await place.bash(trick)).is_error
    assert "planted" not in (checkout / ".git/config").read_text()
    assert not (checkout / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_command_cannot_redirect_checkout_to_other_repository(
    tmp_path: Path, checkout: Path, way: SandboxBackend
) -> None:
    """Otherwise git would use hooks and configuration of the other directory."""
    needs(way)
    place = SandboxedWorkspace.make(tmp_path, way)
    await place.bash("git init -q --bare evil; echo ../evil > .git/commondir")
    assert not (checkout / ".git/commondir").exists()
    assert git(checkout, "log", "-1", "--format=%s") == "first"


async def test_command_cannot_redirect_worktree_to_other_repository(tmp_path: Path, checkout: Path) -> None:
    needs("bubblewrap")
    main = _beside(checkout)
    place = SandboxedWorkspace.make(tmp_path, "bubblewrap")
    own = main / ".git/worktrees/project"
    was = [(own / name).read_text() for name in ("commondir", "gitdir")]
    for target in (f"{own}/commondir", f"{own}/gitdir", ".git"):
        assert (await place.bash(f"echo evil > {target}")).is_error
        assert (await place.bash(f"rm -f {target} && echo evil > {target}")).is_error
    assert [(own / name).read_text() for name in ("commondir", "gitdir")] == was


def test_pointer_to_foreign_or_no_repository_grants_nothing(tmp_path: Path, checkout: Path) -> None:
    visitor = tmp_path / "visitor"
    visitor.mkdir()
    assert Repository.of(visitor) == Repository()
    (visitor / ".git").write_text(f"gitdir: {checkout}/.git\n")
    assert Repository.of(visitor) == Repository()
    (visitor / ".git").unlink()
    (visitor / ".git").symlink_to(checkout / ".git")
    assert Repository.of(visitor) == Repository()
