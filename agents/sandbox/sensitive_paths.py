"""Sensitive paths: files of git, keys, and Coterie's own files."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.mailbox.transports.bridge.socket_path import RUNTIME_VARIABLE, bridge_directory
from coterie.paths import checkout_root, git_directories, home_directory

SHARED = ("objects", "refs", "logs")
"""What a commit in a worktree writes in the repository."""
RUN_BY_GIT = ("hooks", "config", "config.worktree", "modules", "info", "commondir", "gitdir")
"""In a directory of git's: what names programs, attributes for which programs are run, or where all that is."""
ELSEWHERE = "commondir"
"""Where a file of this name stands, git takes hooks and configuration from the directory that it names."""


@attrs.frozen(kw_only=True)
class Repository:
    """The repository that a workspace belongs to, as far as commands may write it."""

    readable: tuple[Path, ...] = ()
    """The main checkout of a worktree, which may lie where commands see nothing else."""
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    hooks: tuple[Path, ...] = ()
    """Directories that must be there, so that nobody can make them."""
    unwanted: tuple[Path, ...] = ()
    """Files that must not be there, and that nothing keeps commands from making."""

    @classmethod
    def of(cls, root: Path) -> "Repository":
        """That of *root*: a commit can be made, and nothing planted that the user's own git would run."""
        top = checkout_root(root)
        found = git_directories(top)
        if found is None:
            return cls()
        own, common = found
        if own == common:
            return cls(
                writable=(own,), protected=tuple(_closed(own)), hooks=(own / "hooks",), unwanted=(own / ELSEWHERE,)
            )
        shared = tuple(common / name for name in SHARED)
        return cls(readable=(common.parent,), writable=(own, *shared), protected=(top / ".git", *_closed(own)))


def _closed(directory: Path) -> Iterator[Path]:
    return (directory / name for name in RUN_BY_GIT)


SECRETS = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".oci",
        ".config/gcloud",
        ".config/gh",
        ".config/glab-cli",
    ),
    *(
        ".netrc",
        ".git-credentials",
        ".config/git/credentials",
        ".pgpass",
        ".my.cnf",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
    ),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".config/pip/pip.conf", ".terraform.d"),
    *(".vault-token", ".password-store", ".local/share/keyrings", ".config/op", ".config/Bitwarden CLI"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".claude.json", ".claude/.credentials.json"),
)
"""Below the user's home directory."""


def hidden_paths() -> Iterator[Path]:
    """Where keys and the files of sessions are, and sockets by which services of this user can be asked."""
    user = Path.home()
    yield from (user / name for name in SECRETS)
    yield home_directory()
    yield bridge_directory()
    if runtime := os.environ.get(RUNTIME_VARIABLE):
        yield Path(runtime)
