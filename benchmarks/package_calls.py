"""Random calls of Read, Grep, Glob and Bash over the sources of the installed packages."""

import random
import shlex
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from benchmarks.recorded_runs import Call

PACKAGES = Path(sysconfig.get_path("purelib"))
PATTERNS = ("^class ", "^import ", "def __init__", "raise ", "return None", "isinstance", "TODO")
LINES = (None, 100, 400)
"""Number of lines that a call of Read requests: one of these."""
MOST_PRINTED = 150_000
"""Output size of a drawn command in bytes: some exceed the limit of a conversation, none fills a window alone."""


@attrs.define(eq=False)
class PackageCalls:
    """Generator of calls, deterministic for a seed and the installed packages."""

    source: random.Random
    files: Sequence[Path] = attrs.field(factory=lambda: _sources(PACKAGES))
    """Paths relative to the directory of the packages."""
    weights: Sequence[int] = (9, 5, 2, 4)
    """Weights of reading, searching, listing, and printing by a command."""
    lines: Sequence[int | None] = LINES

    def draw(self) -> Call:
        """Return a call as an agent makes it when it explores an unknown project."""
        kinds: tuple[Callable[[Path], Call], ...] = (self._read, self._grep, self._glob, self._bash)
        [kind] = self.source.choices(kinds, weights=self.weights)
        return kind(self.source.choice(self.files))

    def _read(self, file: Path) -> Call:
        limit = self.source.choice(self.lines)
        arguments = {"file_path": str(file)} | ({} if limit is None else {"limit": limit})
        return Call(name="Read", arguments=arguments)

    def _grep(self, file: Path) -> Call:
        arguments = {
            "pattern": self.source.choice(PATTERNS),
            "path": str(file.parent),
            "output_mode": self.source.choice(("content", "content", "files_with_matches")),
            "head_limit": self.source.choice((100, 250, 2_000)),
        }
        return Call(name="Grep", arguments=arguments)

    def _glob(self, file: Path) -> Call:
        return Call(name="Glob", arguments={"pattern": "**/*.py", "path": file.parts[0]})

    def _bash(self, file: Path) -> Call:
        package, directory = shlex.quote(file.parts[0]), shlex.quote(str(file.parent))
        command = self.source.choice(
            (
                f"cat {directory}/*.py",
                f"cat {shlex.quote(str(file))}",
                f"grep -rn --include='*.py' self {directory}",
                f"find {package} -name '*.py' | sort",
                f"find {package} -name '*.py' | sort | xargs wc -l",
            )
        )
        return Call(name="Bash", arguments={"command": f"{command} | head -c {MOST_PRINTED}"})


def _sources(packages: Path) -> list[Path]:
    """Return the non-empty Python files of packages."""
    found = (path for path in packages.rglob("*.py") if path.parent != packages and path.stat().st_size > 500)
    return sorted(path.relative_to(packages) for path in found)
