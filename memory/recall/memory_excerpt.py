"""The excerpt of a memory as a model sees it: its beginning and its age, in a safe frame."""

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import attrs

from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.store_scan import open_memories, read_head
from coterie.memory.store.confined_directory import ConfinedDirectory

DAY = 86_400
MONTH = 30
YEAR = 365


@attrs.frozen(kw_only=True)
class LoadedMemory:
    """The beginning of a memory file."""

    path: str
    """Relative to the store."""
    text: str
    size: int
    """Bytes of the whole file."""
    modified: float
    """Seconds since the epoch."""
    is_cut: bool

    def render(self, place: Path, now: float, stale_days: int) -> str:
        """What the model reads; *place* is where the file is."""
        age = age_text(now - self.modified)
        lines = [f"<memory path={quoteattr(str(place))} saved={quoteattr(age)}>"]
        if now - self.modified >= stale_days * DAY:
            lines.append(f"[Saved {age}: it may no longer be true. Check it before you rely on it.]")
        lines.append(escape(self.text))
        if self.is_cut:
            lines.append(f"[cut: {self.size:,} bytes in all; Read shows the rest]")
        return "\n".join([*lines, "</memory>"])


def load_memories(directory: Path, paths: Sequence[str], settings: RecallSettings) -> list[LoadedMemory]:
    """The beginnings of the files *paths*, in that order. Blocks; what is gone or is no text is left out."""
    with open_memories(directory) as memories:
        loaded = [_load(memories, path, settings) for path in paths] if memories else []
    return [memory for memory in loaded if memory is not None]


def age_text(seconds: float) -> str:
    """How long ago something was; what lies in the future, by a clock that was set back, was today."""
    days = max(0, int(seconds // DAY))
    if days < 2:
        return "yesterday" if days else "today"
    if days < 2 * MONTH:
        return f"{days} days ago"
    return f"{days // MONTH} months ago" if days < 2 * YEAR else f"{days // YEAR} years ago"


def _load(memories: ConfinedDirectory, path: str, settings: RecallSettings) -> LoadedMemory | None:
    try:
        status = (memories.path / path).lstat()
    except OSError:
        return None
    content = read_head(memories, path, settings.file_bytes + 1)
    if content is None or b"\0" in content:
        return None
    text = _cut(content, settings)
    return LoadedMemory(
        path=path,
        text=text.decode(errors="replace").strip("\n"),
        size=status.st_size,
        modified=status.st_mtime,
        is_cut=len(text) < status.st_size,
    )


def _cut(content: bytes, settings: RecallSettings) -> bytes:
    """As many whole lines of *content* as there may be; of one that is too long by itself, its beginning."""
    start = b"".join(content.splitlines(keepends=True)[: settings.file_lines])
    if len(start) <= settings.file_bytes:
        return start
    end = start.rfind(b"\n", 0, settings.file_bytes) + 1
    return start[:end] if end else start[: settings.file_bytes].decode(errors="ignore").encode()
