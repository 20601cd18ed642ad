"""Files of a project at the beginning and at the end of a recorded session.

A file that was not touched since is as it was. Of the others the last commit before the session is asked, and what the
agents read. The version of a file that an agent saw first decides, if it is recorded.
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
"""Bytes of one file."""
TOTAL_LIMIT = 1_000_000
"""Bytes of all."""
COUNT_LIMIT = 500
"""Files."""
_SKIPPED = frozenset({".git", ".hg", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"})
_SECRETS = re.compile(r"\.env(\..*)?|\.netrc|\.npmrc|\.pypirc|credentials.*|id_(rsa|ed25519).*|.*\.(pem|key|p12|kdbx)")
"""Names of files that are left out whatever is in them."""
_LINE = re.compile(r" *\d+\t(.*)")
_CHANGES = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
"""The tools that change a file, and the argument that names it."""


@attrs.define(eq=False, kw_only=True)
class RecordedFiles:
    """What is known of the files."""

    is_git: bool = False
    first: dict[str, str] = attrs.field(factory=dict)
    """Texts by path, as the session began."""
    last: dict[str, str] = attrs.field(factory=dict)
    """Those that agents wrote, as they are now."""
    unknown: list[str] = attrs.field(factory=list)
    """What cannot be known, in words."""


def find_files(
    project: Path, started: float, voices: Mapping[str, AgentTurns], elsewhere: Sequence[str] = ()
) -> RecordedFiles:
    """The files of *project*, where a session began at *started*.

    Agents named in *elsewhere* have worked in another directory: what they wrote is not looked at. Blocks.
    """
    looking = _FileHistory(project=project, started=started, voices=voices)
    found = RecordedFiles(is_git=looking.base is not None or _git(project, "rev-parse", "--git-dir") is not None)
    total = 0
    for path in looking.paths():
        if _SECRETS.fullmatch(Path(path).name):
            found.unknown.append(f"{path} is left out: by its name there may be secrets in it")
            continue
        text = looking.first(path, found.unknown)
        if text is None:
            continue
        size = len(text.encode())
        if size > FILE_LIMIT or total + size > TOTAL_LIMIT or len(found.first) >= COUNT_LIMIT:
            found.unknown.append(f"{path} is left out: there is too much to put into one file")
            continue
        total += size
        found.first[path] = text
    for path in looking.written(elsewhere):
        looking.last(path, found)
    return found


@attrs.define(eq=False, kw_only=True)
class _FileHistory:
    """Looks at one project."""

    project: Path
    started: float
    voices: Mapping[str, AgentTurns]
    base: str | None = attrs.field(init=False)
    """The last commit before the session."""
    _seen: dict[str, str] = attrs.field(factory=dict, init=False)
    """The version in which each file was first seen, by path."""
    _latest: dict[str, str] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        commit = _git(self.project, "log", "-1", "--format=%H", f"--before=@{int(self.started)}", "HEAD")
        self.base = None if commit is None else commit.decode().strip() or None
        sights = sorted((each for voice in self.voices.values() for each in voice.sights), key=lambda each: each.at)
        for sight in sights:
            if (path := self._relative(sight.path)) is not None:
                self._seen.setdefault(path, sight.version)
                self._latest[path] = sight.version

    def paths(self) -> list[str]:
        """All that may have been there."""
        listed = _git(self.project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        now = _walk(self.project) if listed is None else _names(listed)
        before = () if self.base is None else _names(_git(self.project, "ls-tree", "-rz", "--name-only", self.base))
        return sorted({*now, *before, *self._seen})

    def first(self, path: str, unknown: list[str]) -> str | None:
        """The text of *path* when the session began; None if it was not there, or is not known."""
        candidates = [text for text in self._candidates(path) if text is not None]
        wanted = self._seen.get(path)
        known = next((text for text in candidates if wanted in (None, _version(text))), None)
        if known is not None and (text := _decoded(known)) is None:
            unknown.append(f"{path} is left out: it is not text")
        if known is not None:
            return text
        is_new = wanted is None or any(name == path for name in self._created())
        if candidates and not is_new:
            unknown.append(f"{path} is not as the agents saw it first: it is as near to that as is known")
            return _decoded(candidates[0])
        if not is_new:
            unknown.append(f"the first content of {path} is not known")
        return None

    def _candidates(self, path: str) -> Iterator[bytes | None]:
        file = self.project / path
        is_there = file.is_file() and not file.is_symlink()
        if is_there and file.stat().st_mtime < self.started:
            yield file.read_bytes()
            return
        if self.base is not None:
            yield _git(self.project, "show", f"{self.base}:./{path}")
        for text in self._read_texts(path):
            yield from (text.encode(), f"{text}\n".encode())

    def _read_texts(self, path: str) -> Iterator[str]:
        """What Read gave of the whole of *path*."""
        for voice, call in self._calls("Read"):
            given, result = call["input"], voice.results.get(call["id"])
            if result is None or self._relative(Path(str(given.get("file_path")))) != path:
                continue
            lines = [_LINE.fullmatch(line) for line in result.text.split("\n")]
            if not ({"offset", "limit"} & set(given)) and all(lines):
                yield "\n".join(line[1] for line in lines if line)

    def _created(self) -> Iterator[str]:
        """What was written before anybody had read it: it was not there."""
        read = {self._relative(Path(str(call["input"].get("file_path")))) for _, call in self._calls("Read")}
        for path in self.written(()):
            if path not in read:
                yield path

    def written(self, elsewhere: Sequence[str]) -> list[str]:
        """What agents have changed by their tools, except those who worked *elsewhere*."""
        paths = (
            self._relative(Path(str(call["input"].get(argument))))
            for tool, argument in _CHANGES.items()
            for voice, call in self._calls(tool)
            if voice.name not in elsewhere
            and (result := voice.results.get(call["id"])) is not None
            and not result.is_error
        )
        return sorted({path for path in paths if path is not None})

    def last(self, path: str, found: RecordedFiles) -> None:
        """Take note of what is in *path*, if that is what an agent left there."""
        file = self.project / path
        content = file.read_bytes() if file.is_file() else None
        if content is None or _version(content) != self._latest.get(path):
            found.unknown.append(f"{path} was changed after the agents had written it, so nothing is expected of it")
        elif (text := _decoded(content)) is not None and len(content) <= FILE_LIMIT:
            found.last[path] = text

    def _calls(self, tool: str) -> Iterator[tuple[AgentTurns, Block]]:
        for voice in self.voices.values():
            for said in voice.replies:
                yield from ((voice, call) for call in said.calls if call["name"] == tool)

    def _relative(self, path: Path) -> str | None:
        """*path* below the project; None for one that is not."""
        whole = self.project / path
        return str(whole.relative_to(self.project)) if whole.is_relative_to(self.project) else None


def _version(content: bytes) -> str:
    # As agents tell versions of files apart.
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _decoded(content: bytes) -> str | None:
    """*content* as text that YAML can hold; None for other files."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text) else text


def _git(project: Path, *arguments: str) -> bytes | None:
    """What git says; None if it refuses, or there is none."""
    command = ("git", "-C", str(project), *arguments)
    try:
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - the user's own git
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _names(listed: bytes | None) -> list[str]:
    return [] if listed is None else [name for name in listed.decode(errors="replace").split("\0") if name]


def _walk(project: Path) -> list[str]:
    """The files below *project*; of very many, some."""
    found: list[str] = []
    for directory, names, files in os.walk(project):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        found += [str((Path(directory) / name).relative_to(project)) for name in sorted(files)]
        if len(found) > 2 * COUNT_LIMIT:
            break
    return found
