"""Files and skills that a compaction puts back into the context."""

import codecs
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.agents.skills.skill_text import skill_block, skill_text
from coterie.agents.tools.skills.load_skill import SkillTool
from coterie.agents.tools.tool import Workspace
from coterie.memory.layer_settings import CompactionSettings


@attrs.frozen(kw_only=True)
class RestoredFile:
    """A file, or its beginning."""

    path: str
    text: str
    is_cut: bool

    def shown(self) -> str:
        """As the model reads it."""
        more = "\n[... there is more; read the file]" if self.is_cut else ""
        return f'<file path="{self.path}">\n{self.text}{more}\n</file>'


@attrs.frozen(kw_only=True)
class RestoredSkill:
    """A skill, or its beginning."""

    used: UsedSkill
    text: str
    is_cut: bool

    def shown(self) -> str:
        """As the model reads it."""
        more = f"\n[... there is more; read {self.used.file}]" if self.is_cut else ""
        return skill_block(self.used, f"{self.text}{more}")


def newest_files(workspace: Workspace, calls: Sequence[bytes], count: int) -> list[str]:
    """The *count* files that the model saw last, the newest first.

    Left out are the agent's own, and what one of the *calls* has named that stay in the conversation: it is in view.
    """
    files: list[str] = []
    for path in reversed(list(workspace.seen.known())):
        if len(files) == count:
            break
        if not Path(path).is_relative_to(workspace.scratch) and not _is_named(path, workspace.root, calls):
            files.append(path)
    return files


def _is_named(path: str, root: Path, calls: Sequence[bytes]) -> bool:
    names = [path, str(Path(path).relative_to(root))] if Path(path).is_relative_to(root) else [path]
    return any(msgspec.json.encode(name) in call for name in names for call in calls)


def used_skills(workspace: Workspace, calls: Sequence[bytes]) -> list[UsedSkill]:
    """The skills that the agent has loaded, the last one first, but for those that one of the *calls* has loaded.

    Those calls stay in the conversation, and their results with them.
    """
    in_view = {call.input.get("skill") for call in map(_call, calls) if call.name == SkillTool.name}
    return [used for used in reversed(workspace.skills.known()) if used.name not in in_view]


def read_skills(skills: Iterable[UsedSkill], settings: CompactionSettings) -> list[RestoredSkill]:
    """The skills that can still be read, within *settings*. Blocks on the disk."""
    restored: list[RestoredSkill] = []
    room = settings.skills_total * TEXT_BYTES
    for used in skills:
        size = min(settings.skill * TEXT_BYTES, room)
        if size <= 0:
            break
        text = skill_text(used)
        if isinstance(text, FileProblem):
            continue  # gone, or no text any more: there is nothing to put back
        content = text.encode()
        if is_cut := len(content) > size:
            text = content[:size].decode(errors="ignore")
            text = text.rpartition("\n")[0] or text
        restored.append(RestoredSkill(used=used, text=text, is_cut=is_cut))
        room -= min(len(content), size)
    return restored


class _Call(msgspec.Struct):
    name: str
    input: dict[str, Any]


def _call(data: bytes) -> _Call:
    return msgspec.json.decode(data, type=_Call)


def read_files(paths: Iterable[str], settings: CompactionSettings) -> list[RestoredFile]:
    """The files that can still be read as text, within *settings*. Blocks on the disk."""
    files: list[RestoredFile] = []
    room = settings.files_total * TEXT_BYTES
    for path in paths:
        size = min(settings.file * TEXT_BYTES, room)
        if size <= 0:
            break
        try:
            with Path(path).open("rb") as file:
                content = file.read(size + 1)
            is_cut = len(content) > size
            # A character that the cut has parted is no sign that the file is no text.
            text = codecs.getincrementaldecoder("utf-8")().decode(content[:size], final=not is_cut)
        except (OSError, UnicodeDecodeError):
            continue  # gone, or no text any more: there is nothing to put back
        lines, newline, _ = text.rpartition("\n") if is_cut else ("", "", "")
        files.append(RestoredFile(path=path, text=lines if newline else text, is_cut=is_cut))
        room -= len(content)
    return files
