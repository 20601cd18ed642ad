"""How the memory of a kind of agent begins: out of git's sight, or with what its project gives it."""

from pathlib import Path

from coterie.files import replace_file
from coterie.memory.store.change import Author
from coterie.memory.store.index import INDEX
from coterie.memory.store.store import Store

SEEDED = "seeded from the project's snapshot"


def exclude_from_git(top: Path, directory: Path) -> bool:
    """Have the git repository at *top* ignore *directory*, which is below it; whether its list has changed.

    The list is the repository's own, `.git/info/exclude`, so that no tracked file changes. Without a repository nothing
    happens. Blocks; raises `OSError`.
    """
    if not (top / ".git").is_dir() or not directory.is_relative_to(top):
        return False
    path = top / ".git" / "info" / "exclude"
    line = f"/{directory.relative_to(top).as_posix()}/"
    text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
    if line in text.split("\n"):
        return False
    path.parent.mkdir(exist_ok=True)
    start = text if not text or text.endswith("\n") else f"{text}\n"
    replace_file(path, f"{start}{line}\n".encode("utf-8", "surrogateescape"))
    return True


def seed_store(store: Store, snapshot: Path) -> list[str]:
    """Copy the memories of *snapshot*, a directory, into *store* if that has none; which ones.

    Of what the store refuses nothing is taken. Blocks; raises `StoreError` and `OSError`.
    """
    if store.paths() or store.index():
        return []
    source = Store.at(snapshot)
    names = source.paths()
    author = Author(by="user", why=SEEDED)
    # The index first: the store then finds its lines there and adds none.
    for name in (*((INDEX,) if names and source.index() else ()), *names):
        if (content := source.read(name)) is not None:
            store.write(name, content, author, base=None)
    return names
