"""Git in a sandbox: commits can be made, and nothing planted that the user's own git would run."""

import subprocess
from pathlib import Path

import pytest

from coterie.agents.sandbox.sandbox import SandboxBackend
from coterie.agents.sandbox.sensitive_paths import Repository
from tests.agents.sandbox.sandboxed_workspace import SandboxedWorkspace, needs

pytestmark = pytest.mark.slow

COMMIT = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 'from within' && git log -1 --format=%s"


def _git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(directory), *identity, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _beside(checkout: Path) -> Path:
    """*checkout* in another place, and a worktree of it where it was."""
    main = checkout.rename(checkout.parent / "main")
    _git(main, "worktree", "add", "-q", "-b", "side", str(checkout))
    return main


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    _git(tmp_path / "project", "init", "-q", "-b", "main")
    _git(tmp_path / "project", "commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path / "project"


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_a_commit_can_be_made_in_a_checkout(tmp_path: Path, checkout: Path, way: SandboxBackend) -> None:
    needs(way)
    place = SandboxedWorkspace.make(tmp_path, way)
    assert (await place.bash(f"echo x > file && git add file && {COMMIT}")).text == "from within"
    assert _git(checkout, "log", "-1", "--format=%s") == "from within"


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_a_commit_can_be_made_in_a_worktree_and_its_repository_is_safe(
    tmp_path: Path, checkout: Path, way: SandboxBackend
) -> None:
    needs(way)
    main = _beside(checkout)
    place = SandboxedWorkspace.make(tmp_path, way)
    assert (await place.bash(COMMIT)).text == "from within"
    assert _git(main, "log", "-1", "--format=%s", "side") == "from within"
    for planted in ("hooks/pre-commit", "config", "HEAD", "worktrees/planted"):
        assert (await place.bash(f"echo planted >> {main}/.git/{planted}")).is_error, planted
    assert (await place.bash(f"echo x > {main}/file")).is_error
    assert _git(main, "status", "--short") == ""


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
async def test_nothing_can_be_planted_in_bubblewrap(tmp_path: Path, checkout: Path, trick: str) -> None:
    needs("bubblewrap")
    place = SandboxedWorkspace.make(tmp_path, "bubblewrap")
    assert (await place.bash(trick)).is_error
    assert "planted" not in (checkout / ".git/config").read_text()
    assert not (checkout / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize("way", ["bubblewrap", "landlock"])
async def test_no_other_directory_becomes_the_repository_of_a_checkout(
    tmp_path: Path, checkout: Path, way: SandboxBackend
) -> None:
    """Git would take its hooks and its configuration from there."""
    needs(way)
    place = SandboxedWorkspace.make(tmp_path, way)
    await place.bash("git init -q --bare evil; echo ../evil > .git/commondir")
    assert not (checkout / ".git/commondir").exists()
    assert _git(checkout, "log", "-1", "--format=%s") == "first"


async def test_no_other_directory_becomes_the_repository_of_a_worktree(tmp_path: Path, checkout: Path) -> None:
    needs("bubblewrap")
    main = _beside(checkout)
    place = SandboxedWorkspace.make(tmp_path, "bubblewrap")
    own = main / ".git/worktrees/project"
    was = [(own / name).read_text() for name in ("commondir", "gitdir")]
    for target in (f"{own}/commondir", f"{own}/gitdir", ".git"):
        assert (await place.bash(f"echo evil > {target}")).is_error
        assert (await place.bash(f"rm -f {target} && echo evil > {target}")).is_error
    assert [(own / name).read_text() for name in ("commondir", "gitdir")] == was


def test_a_pointer_to_a_strangers_repository_opens_nothing(tmp_path: Path, checkout: Path) -> None:
    visitor = tmp_path / "visitor"
    visitor.mkdir()
    (visitor / ".git").write_text(f"gitdir: {checkout}/.git\n")
    assert Repository.of(visitor) == Repository()
    (visitor / ".git").unlink()
    (visitor / ".git").symlink_to(checkout / ".git")
    assert Repository.of(visitor) == Repository()


def test_without_a_repository_nothing_is_opened(tmp_path: Path) -> None:
    assert Repository.of(tmp_path) == Repository()
