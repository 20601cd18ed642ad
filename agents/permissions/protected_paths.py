"""Protected paths that no rule can open for editing."""

from pathlib import Path

from coterie.paths import WORKTREES, home_directory, project_directory

PROTECTED_DIRECTORIES = frozenset(
    {
        *(".git", ".husky", ".coterie", ".claude", ".vscode", ".idea", ".devcontainer"),
        *(".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"),
    }
)
"""Directories with hooks, settings, agent definitions, memory, tasks that editors run, and keys."""
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
"""Start-up files, git configuration, configured tool servers, and passwords."""


def is_inside(path: Path, directory: Path) -> bool:
    """True if *path*, which is resolved, is *directory* or below it, with links of *directory* followed."""
    return path.is_relative_to(directory.resolve())


def is_protected(path: Path, root: Path) -> bool:
    """True if only the user may change *path*, which is resolved; case is ignored.

    Directories above *root* do not count, because the user has chosen *root* as the place of work.
    """
    root = root.resolve()
    below = path.relative_to(root) if path.is_relative_to(root) else path
    parts = [part.casefold() for part in below.parts]
    if not PROTECTED_DIRECTORIES.isdisjoint(parts) or path.name.casefold() in PROTECTED_FILES:
        return True
    # A worktree created for an agent is its place of work, although it is inside of the project directory.
    if path.is_relative_to(root) and is_inside(root, project_directory(root) / WORKTREES):
        return False
    # Some file systems ignore case, so that .GIT is .git.
    folded = Path(str(path).casefold())
    places = (home_directory(), project_directory(root))
    return any(folded.is_relative_to(str(place.resolve()).casefold()) for place in places)
