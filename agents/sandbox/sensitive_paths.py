"""Paths that sandboxed commands must not read or change: git's own files, keys, and Coterie's own files."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.mailbox.transports.bridge.socket_path import RUNTIME_VARIABLE, bridge_directory
from coterie.paths import checkout_root, git_directories, home_directory

SHARED = ("objects", "refs", "logs")
"""Directories in the git directory of a repository that a commit in one of its worktrees writes to."""
RUN_BY_GIT = ("hooks", "config", "config.worktree", "modules", "info", "commondir", "gitdir")
"""Entries of a git directory that can name programs to run, or redirect git to other configuration."""
COMMON_DIRECTORY_FILE = "commondir"
"""Name of a file in a git directory that makes git read hooks and configuration from another directory."""
SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".config/gcloud", ".config/gh"),
    *(".config/glab-cli", ".netrc", ".git-credentials", ".config/git/credentials", ".pgpass", ".my.cnf"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml"),
    *(".gem/credentials", ".config/pip/pip.conf", ".terraform.d", ".vault-token", ".password-store"),
    *(".local/share/keyrings", ".config/op", ".config/Bitwarden CLI", ".mozilla", ".thunderbird"),
    *(".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".bash_history"),
    *(".zsh_history", ".python_history", ".psql_history", ".claude.json", ".claude/.credentials.json"),
)
"""Files and directories with keys, passwords or histories, relative to the user's home directory."""


@attrs.frozen(kw_only=True)
class Repository:
    """Access of sandboxed commands to a workspace's git repository; all fields are empty without a repository."""

    readable: tuple[Path, ...] = ()
    """Main checkout of the repository if the workspace is a worktree; it may be inside a hidden directory."""
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    hooks: tuple[Path, ...] = ()
    """Directories, such as `.git/hooks`, to create before commands run: the sandbox can protect only existing ones."""
    unwanted: tuple[Path, ...] = ()
    """Files that are deleted after each command, because no rule can stop the command from creating them."""

    @classmethod
    def of(cls, root: Path) -> "Repository":
        """Return the access for workspace *root*: commands can commit, but not plant a program that git later runs."""
        top = checkout_root(root)
        found = git_directories(top)
        if found is None:
            return cls()
        own, common = found
        run_by_git = tuple(own / name for name in RUN_BY_GIT)
        if own == common:
            unwanted = (own / COMMON_DIRECTORY_FILE,)
            return cls(writable=(own,), protected=run_by_git, hooks=(own / "hooks",), unwanted=unwanted)
        shared = tuple(common / name for name in SHARED)
        return cls(readable=(common.parent,), writable=(own, *shared), protected=(top / ".git", *run_by_git))


def hidden_paths() -> Iterator[Path]:
    """Yield the paths to hide from commands: keys and passwords, Coterie's files, sockets of the user's services."""
    user = Path.home()
    yield from (user / name for name in SECRETS)
    yield home_directory()
    yield bridge_directory()
    if runtime := os.environ.get(RUNTIME_VARIABLE):
        yield Path(runtime)
