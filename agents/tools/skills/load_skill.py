"""The Skill tool: loads the text of a skill."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.errors import ToolFailed
from coterie.agents.events.layer_events import SkillLoaded
from coterie.agents.skills.skill_text import skill_block, skill_text
from coterie.agents.skills.store import Skills
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description


@attrs.frozen(kw_only=True)
class SkillInput:
    """Which skill, and what for."""

    skill: str = attrs.field(metadata=described("The name of the skill, as it is listed."))
    args: str = attrs.field(
        default="", metadata=described("What the skill is to be used on, if it asks for something.")
    )


@attrs.frozen(kw_only=True)
class SkillTool:
    """Loads the skills that were there when the agent was started."""

    skills: Skills
    emit: Callable[[SkillLoaded], None]

    name: ClassVar = "Skill"
    description: ClassVar = tool_description("skill")
    input_type: ClassVar = SkillInput
    access: ClassVar[Access] = "session"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, _arguments: SkillInput, _workspace: Workspace) -> tuple[Path, ...]:
        """No file that is anybody's but its own."""
        return ()

    async def run(self, arguments: SkillInput, workspace: Workspace) -> ToolResult:
        """The text of the skill as it is now, and where its other files are."""
        name = arguments.skill.strip().removeprefix("/")
        skill = self.skills.by_name.get(name)
        if skill is None:
            reason = self.skills.missing(name)
            raise ToolFailed(f"{reason[0].upper()}{reason[1:]}")
        if not skill.is_for_model:
            raise ToolFailed(f"The skill {name} can be started by the user alone, as /{name}.")
        used = skill.used(arguments.args.strip())
        text = await trio.to_thread.run_sync(skill_text, used)
        if isinstance(text, FileProblem):
            raise ToolFailed(f"The skill {name} cannot be loaded: {text}")
        workspace.skills.record(used)
        self.emit(SkillLoaded(name=name, by="model", path=used.file, characters=len(text)))
        return ToolResult(text=skill_block(used, text))
