"""Reconstructs the project files as they were when a recorded session started, and the files that its agents wrote.

A file that was not modified since the start is taken from the disk. Other candidates are the last git commit before the
session, and reads of the whole file by agents. The hash of the version that an agent saw first selects one of them.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from coterie.scenarios.recording.transcript_turns import AgentTurns, Block

FILE_LIMIT = 100_000
"""Maximum size in bytes of one project file in a recorded scenario; larger files are omitted."""
TOTAL_LIMIT = 1_000_000
"""Maximum size in bytes of all project files in a recorded scenario together; further files are omitted."""
COUNT_LIMIT = 500
"""Maximum number of project files in a recorded scenario; further files are omitted."""
_SKIPPED = frozenset({".git", ".hg", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"})
_SECRETS = re.compile(r"\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|credentials.*|id_(rsa|ed25519).*|.*\.(pem|key|p12|kdbx)")
"""Pattern of file names that suggest secrets, such as `.env` and `id_rsa`; these files are never recorded."""
_LINE = re.compile(r" *\d+\t(.*)")
_CHANGES = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
"""Tools that change a file, each with the name of the tool argument that holds the path of the file."""


@attrs.define(eq=False, kw_only=True)
class RecordedFiles:
    """Texts of the project files before and after a recorded session, as far as they could be determined."""

    is_git: bool = False
    first: dict[str, str] = attrs.field(factory=dict)
    """Texts of the files at the start of the session, by path relative to the project."""
    last: dict[str, str] = attrs.field(factory=dict)
    """Current texts of the files that agents wrote, by relative path; without files that were changed afterwards."""
    unknown: list[str] = attrs.field(factory=list)
    """Remarks for the user on files that are omitted, or whose recorded text may be wrong."""


def find_files(
    project: Path, started: float, agents: Mapping[str, AgentTurns], elsewhere: Sequence[str] = ()
) -> RecordedFiles:
    """Return the initial texts of the files of *project*, and the texts of the files that a session's agents wrote.

    *started* is the start time of the session, *agents* its agents by name. The agents in *elsewhere* worked in another
    directory, so files that they wrote are ignored. Runs git. Blocks.
    """
    history = _FileHistory(project=project, started=started, agents=agents)
    found = RecordedFiles(is_git=history.base is not None or _git(project, "rev-parse", "--git-dir") is not None)
    total = 0
    for path in history.paths():
        if _SECRETS.fullmatch(Path(path).name):
            found.unknown.append(f"{path} is omitted: its name suggests secrets; add a substitute if a run needs it")
            continue
        text = history.first(path, found.unknown)
        if text is None:
            continue
        size = len(text.encode())
        if size > FILE_LIMIT or total + size > TOTAL_LIMIT or len(found.first) >= COUNT_LIMIT:
            found.unknown.append(f"{path} is omitted: it exceeds the size limits; add it by hand if a run needs it")
            continue
        total += size
        found.first[path] = text
    for path in history.written(elsewhere):
        history.last(path, found)
    return found


@attrs.define(eq=False, kw_only=True)
class _FileHistory:
    """Reconstructs the files of one project before and after a session, from git, the disk and agents' tool calls."""

    project: Path
    started: float
    agents: Mapping[str, AgentTurns]
    base: str | None = attrs.field(init=False)
    """Id of the last git commit before the session; None if there is none."""
    _seen: dict[str, str] = attrs.field(factory=dict, init=False)
    """Hash of the first version of each file that an agent read or wrote, by relative path."""
    _latest: dict[str, str] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        commit = _git(self.project, "log", "-1", "--format=%H", f"--before=@{int(self.started)}", "HEAD")
        self.base = None if commit is None else commit.decode().strip() or None
        seen_files = sorted(
            (each for agent_turns in self.agents.values() for each in agent_turns.seen_files), key=lambda each: each.at
        )
        for seen_file in seen_files:
            if (path := self._relative(seen_file.path)) is not None:
                self._seen.setdefault(path, seen_file.version)
                self._latest[path] = seen_file.version

    def paths(self) -> list[str]:
        """Return the sorted paths of files on disk (not ignored by git), in the commit `base`, or seen by agents."""
        listed = _git(self.project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        now = _walk(self.project) if listed is None else _names(listed)
        before = () if self.base is None else _names(_git(self.project, "ls-tree", "-rz", "--name-only", self.base))
        return sorted({*now, *before, *self._seen})

    def first(self, path: str, unknown: list[str]) -> str | None:
        """Return the initial text of *path*; None if new, unknown or not text. Adds remarks on doubts to *unknown*."""
        candidates = [text for text in self._candidates(path) if text is not None]
        seen = self._seen.get(path)
        known = next((text for text in candidates if seen in (None, _version(text))), None)
        if known is not None and (text := _decoded(known)) is None:
            unknown.append(f"{path} is omitted: it is not text; make a command create it if a run needs it")
        if known is not None:
            return text
        # A file that was written before any agent read it did not exist.
        read = {self._relative(Path(str(call["input"].get("file_path")))) for _, call in self._calls("Read")}
        is_new = seen is None or (path not in read and path in self.written(()))
        if candidates and not is_new:
            unknown.append(f"{path} may differ from the version that the agents saw first; check its text")
            return _decoded(candidates[0])
        if not is_new:
            unknown.append(f"the first content of {path} is not known; add the file by hand if a run needs it")
        return None

    def _candidates(self, path: str) -> Iterator[bytes | None]:
        file = self.project / path
        is_there = file.is_file() and not file.is_symlink()
        if is_there and file.stat().st_mtime < self.started:
            yield file.read_bytes()
            return
        if self.base is not None:
            yield _git(self.project, "show", f"{self.base}:./{path}")
        for agent_turns, call in self._calls("Read"):
            given, result = call["input"], agent_turns.results.get(call["id"])
            if result is None or self._relative(Path(str(given.get("file_path")))) != path:
                continue
            lines = [_LINE.fullmatch(line) for line in result.text.split("\n")]
            if not ({"offset", "limit"} & set(given)) and all(lines):
                text = "\n".join(line[1] for line in lines if line)
                yield from (text.encode(), f"{text}\n".encode())

    def written(self, elsewhere: Sequence[str]) -> list[str]:
        """Return the paths of files changed by successful tool calls, without calls of the agents in *elsewhere*."""
        paths = (
            self._relative(Path(str(call["input"].get(argument))))
            for tool, argument in _CHANGES.items()
            for agent_turns, call in self._calls(tool)
            if agent_turns.name not in elsewhere
            and (result := agent_turns.results.get(call["id"])) is not None
            and not result.is_error
        )
        return sorted({path for path in paths if path is not None})

    def last(self, path: str, found: RecordedFiles) -> None:
        """Store the current text of *path* in `found.last` unless long; add a remark if changed since agents saw it."""
        file = self.project / path
        content = file.read_bytes() if file.is_file() else None
        if content is None or _version(content) != self._latest.get(path):
            found.unknown.append(f"{path} was changed after the agents wrote it, so no expectation checks its text")
        elif (text := _decoded(content)) is not None and len(content) <= FILE_LIMIT:
            found.last[path] = text

    def _calls(self, tool: str) -> Iterator[tuple[AgentTurns, Block]]:
        for agent_turns in self.agents.values():
            for reply in agent_turns.replies:
                yield from ((agent_turns, call) for call in reply.calls if call["name"] == tool)

    def _relative(self, path: Path) -> str | None:
        """Return *path* relative to the project directory; None if it is outside this directory."""
        whole = self.project / path
        return str(whole.relative_to(self.project)) if whole.is_relative_to(self.project) else None


def _version(content: bytes) -> str:
    # Must match the version hash in transcripts.
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _decoded(content: bytes) -> str | None:
    """Decode *content* as UTF-8; None if it is not UTF-8, or has control characters other than tab, LF and CR."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text) else text


def _git(project: Path, *arguments: str) -> bytes | None:
    """Run git in the directory *project* and return its output; None if git fails or is not installed."""
    command = ("git", "-C", str(project), *arguments)
    try:
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - the user's own git
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _names(listed: bytes | None) -> list[str]:
    return [] if listed is None else [name for name in listed.decode(errors="replace").split("\0") if name]


def _walk(project: Path) -> list[str]:
    """Return the relative paths of files below *project*, without `.git` and caches; stop at more than 1,000 files."""
    found: list[str] = []
    for directory, names, files in os.walk(project):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        found += [str((Path(directory) / name).relative_to(project)) for name in sorted(files)]
        if len(found) > 2 * COUNT_LIMIT:
            break
    return found
