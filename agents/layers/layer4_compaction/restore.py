"""Files and skills that a compaction restores to the context."""

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
class RestoredText:
    """Text of a file or a skill for the model, possibly truncated."""

    name: str
    """Path of the file, or name of the skill."""
    shown: str
    """The text in its frame."""


def newest_files(workspace: Workspace, calls: Sequence[bytes], count: int) -> list[str]:
    """Return the *count* files that the model read last, newest first.

    Omits files in the scratch directory, and files named by one of the *calls* that stay in the conversation.
    """
    files: list[str] = []
    for path in reversed(list(workspace.seen.known())):
        if len(files) == count:
            break
        inside = Path(path).is_relative_to(workspace.root)
        names = [path, str(Path(path).relative_to(workspace.root))] if inside else [path]
        is_named = any(msgspec.json.encode(name) in call for name in names for call in calls)
        if not Path(path).is_relative_to(workspace.scratch) and not is_named:
            files.append(path)
    return files


def used_skills(workspace: Workspace, calls: Sequence[bytes]) -> list[UsedSkill]:
    """Return the skills that the agent has loaded, newest first.

    Omits skills loaded by one of the *calls*, which stay in the conversation with their results.
    """
    read = (msgspec.json.decode(data, type=_Call) for data in calls)
    in_view = {call.input.get("skill") for call in read if call.name == SkillTool.name}
    return [used for used in reversed(workspace.skills.known()) if used.name not in in_view]


def read_skills(skills: Iterable[UsedSkill], settings: CompactionSettings) -> list[RestoredText]:
    """Read the skills that still exist, within the size limits of *settings*. Blocks on the disk."""
    restored: list[RestoredText] = []
    room = settings.skills_total * TEXT_BYTES
    for used in skills:
        size = min(settings.skill * TEXT_BYTES, room)
        if size <= 0:
            break
        text = skill_text(used)
        if isinstance(text, FileProblem):
            continue  # deleted or no longer text
        content = text.encode()
        if len(content) > size:
            cut = content[:size].decode(errors="ignore")
            text = (cut.rpartition("\n")[0] or cut) + f"\n[... there is more; read {used.file}]"
        restored.append(RestoredText(name=used.name, shown=skill_block(used, text)))
        room -= min(len(content), size)
    return restored


class _Call(msgspec.Struct):
    name: str
    input: dict[str, Any]


def read_files(paths: Iterable[str], settings: CompactionSettings) -> list[RestoredText]:
    """Read the files that still exist and are text, within the size limits of *settings*. Blocks on the disk."""
    files: list[RestoredText] = []
    room = settings.files_total * TEXT_BYTES
    for path in paths:
        size = min(settings.file * TEXT_BYTES, room)
        if size <= 0:
            break
        try:
            with Path(path).open("rb") as file:
                content = file.read(size + 1)
            is_cut = len(content) > size
            # The incremental decoder ignores an incomplete character at the cut.
            text = codecs.getincrementaldecoder("utf-8")().decode(content[:size], final=not is_cut)
        except (OSError, UnicodeDecodeError):
            continue  # deleted or no longer text
        if is_cut:
            lines, newline, _ = text.rpartition("\n")
            text = (lines if newline else text) + "\n[... there is more; read the file]"
        files.append(RestoredText(name=path, shown=f'<file path="{path}">\n{text}\n</file>'))
        room -= len(content)
    return files
