"""What is wrong with an index: files it does not name, names without a file, and more than is loaded."""

from collections.abc import Collection, Iterator

from coterie.memory.checking.finding import Finding
from coterie.memory.store.index import INDEX, LONGEST_LINE, index_lines, is_memory, load_index


def index_findings(text: str, paths: Collection[str]) -> Iterator[Finding]:
    """What is wrong with the index *text* of a store that has the memories *paths*."""
    linked: dict[str, int] = {}
    lines, known = text.split("\n"), frozenset(paths)
    for entry in index_lines(text):
        if leads_nowhere(entry.path, known):
            reason = f"links to {entry.path}, which does not exist"
            yield Finding(path=INDEX, line=entry.line, kind="dead_link", reason=reason)
        elif entry.path in linked:
            reason = f"links to {entry.path}, as line {linked[entry.path]} does"
            yield Finding(path=INDEX, line=entry.line, kind="dead_link", reason=reason)
        linked.setdefault(entry.path, entry.line)
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            reason = f"has {len(line):,} characters; up to {LONGEST_LINE} is fine"
            yield Finding(path=INDEX, line=number, kind="long_line", reason=reason)
    if (warning := load_index(text).warning) is not None:
        yield Finding(path=INDEX, kind="long_index", reason=warning)
    for path in sorted(known - linked.keys()):
        yield Finding(path=path, kind="orphan", reason=f"is not in {INDEX}: an agent does not know of it")


def leads_nowhere(path: str, known: Collection[str]) -> bool:
    """Whether a link to *path* means a memory, and none of the *known* ones; logs and addresses are no memories."""
    return path not in known and path.endswith(".md") and is_memory(path) and "://" not in path
