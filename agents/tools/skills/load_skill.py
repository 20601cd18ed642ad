"""The Skill tool: loads the text of a skill (stored instructions for one kind of work) into the conversation."""

from collections.abc import Callable
from typing import Annotated

import attrs
import trio

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.errors import ToolFailed
from coterie.agents.events.layer_events import SkillLoaded
from coterie.agents.skills.skill_text import skill_block, skill_text
from coterie.agents.skills.store import Skills
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace


@attrs.frozen(kw_only=True)
class SkillInput:
    """Arguments of a call of the Skill tool, which loads the text of a skill."""

    skill: Annotated[str, "The name of the skill, as listed."]
    args: Annotated[str, "Arguments for the skill, if it takes any."] = ""


@attrs.frozen(kw_only=True)
class SkillTool(BuiltInTool, name="Skill", input_type=SkillInput, access="session"):
    """Tool with which the model loads one of *skills*, the skills found when the agent was started."""

    skills: Skills
    emit: Callable[[SkillLoaded], None]

    async def run(self, arguments: SkillInput, workspace: Workspace) -> ToolResult:
        """Return text and directory of the skill. Raises `ToolFailed` if unknown, unreadable or only for users."""
        name = arguments.skill.strip().removeprefix("/")
        skill = self.skills.by_name.get(name)
        if skill is None:
            reason = self.skills.missing(name)
            raise ToolFailed(f"{reason[0].upper()}{reason[1:]}")
        if not skill.is_for_model:
            raise ToolFailed(f"Only the user can start the skill {name}. Ask the user to enter /{name}.")
        used = skill.used(arguments.args.strip())
        text = await trio.to_thread.run_sync(skill_text, used)
        if isinstance(text, FileProblem):
            raise ToolFailed(f"The skill {name} cannot be loaded. Ask the user to correct the file: {text}")
        workspace.skills.record(used)
        self.emit(SkillLoaded(name=name, by="model", path=used.file, characters=len(text)))
        return ToolResult(text=skill_block(used, text))
