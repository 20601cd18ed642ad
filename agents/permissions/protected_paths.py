"""Protected paths that no rule can open for editing."""

from pathlib import Path

from coterie.paths import WORKTREES, home_directory, project_directory

PROTECTED_DIRECTORIES = frozenset(
    {
        *(".git", ".husky", ".coterie", ".claude", ".vscode", ".idea", ".devcontainer"),
        *(".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"),
    }
)
"""Hooks, settings, definitions of agents, memory and tasks that editors run; and keys."""
PROTECTED_FILES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", "config.fish"),
        *(".kshrc", ".cshrc", ".tcshrc", ".login"),
        *(".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".envrc", ".tmux.conf", ".vimrc"),
        *(".gitconfig", ".gitmodules", ".mcp.json", ".claude.json", ".ripgreprc"),
        *(".netrc", ".pgpass", ".npmrc", ".pypirc", ".curlrc", ".wgetrc"),
    }
)
"""Start-up files, git's configuration, servers of tools that are started, and passwords."""


def is_inside(path: Path, directory: Path) -> bool:
    """Whether *path*, resolved, is *directory* or below it, wherever links lead."""
    return path.is_relative_to(directory.resolve())


def is_protected(path: Path, root: Path) -> bool:
    """Whether only the user may change *path*, which is resolved; case makes no difference.

    The directories above *root* do not count: who lets an agent work there has decided about them.
    """
    root = root.resolve()
    below = path.relative_to(root) if path.is_relative_to(root) else path
    parts = [part.casefold() for part in below.parts]
    if not PROTECTED_DIRECTORIES.isdisjoint(parts) or path.name.casefold() in PROTECTED_FILES:
        return True
    if _is_in_worktree(path, root):
        return False
    return any(_is_inside_folded(path, place) for place in (home_directory(), project_directory(root)))


def _is_in_worktree(path: Path, root: Path) -> bool:
    """Whether *path* is below a *root* that was made for an agent to work in."""
    return path.is_relative_to(root) and is_inside(root, project_directory(root) / WORKTREES)


def _is_inside_folded(path: Path, directory: Path) -> bool:
    # On some file systems .GIT is .git.
    return Path(str(path).casefold()).is_relative_to(str(directory.resolve()).casefold())
