"""Layer 1: long tool results are stored in files before they enter the conversation."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from coterie.agents.events.layer_events import ResultsStored
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.agents.tools.tool import ExternalTool, Tool
from coterie.memory.compaction.result_storage import LongResult, select_results, store_results
from coterie.memory.layer_settings import ResultSettings


@attrs.frozen(kw_only=True)
class ToolResultStorage:
    """Step after tool calls that stores long tool results in files and leaves a preview in the conversation.

    The transcript contains only the preview, so later requests, also after a resume or in a fork, send equal bytes.
    """

    directory: Path
    settings: ResultSettings

    async def transform_results(self, agent: Agent, answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """Return *answers* with a preview in place of each long result; unchanged if a file cannot be written."""
        results = [LongResult(id=a.call["id"], text=a.result.text, cap=self._cap(a.tool)) for a in answers]
        chosen = select_results(results, self.settings)
        if not chosen:
            return answers
        try:
            stored = await trio.to_thread.run_sync(store_results, chosen, self.directory, self.settings)
        except OSError as exc:
            agent.report_failure("tool results", exc)
            return answers
        agent.emit(
            ResultsStored(
                paths=[str(path) for path, _ in stored.values()],
                characters_before=sum(len(result.text) for result in chosen),
                characters_after=sum(len(text) for _, text in stored.values()),
            )
        )
        texts = {id_: text for id_, (_, text) in stored.items()}
        shown = [attrs.evolve(a.result, text=texts.get(a.call["id"], a.result.text)) for a in answers]
        return [attrs.evolve(answer, result=result) for answer, result in zip(answers, shown, strict=True)]

    def _cap(self, tool: Tool | None) -> int | None:
        """Return the number of characters over which a result of *tool* is stored in a file.

        None for an unknown tool, and for a tool such as Read that itself keeps its results short.
        """
        if tool is None or tool.result_cap is None:
            return None
        if isinstance(tool, ExternalTool):
            return self.settings.mcp
        return {"Bash": self.settings.bash, "Grep": self.settings.grep}.get(tool.name, self.settings.cap)
