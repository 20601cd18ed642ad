"""Layer 1: long tool results are stored in files before they enter the conversation."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed, ResultsStored
from coterie.agents.loop.agent import Agent, ToolAnswer
from coterie.memory.compaction.result_storage import LongResult, ResultLimits, select_results, store_results


@attrs.frozen(kw_only=True)
class ToolResultStorage:
    """Puts long results into files. What then stands in the conversation is recorded like any other message, so
    the decision is made once and holds on every later request, on resume and in forks.
    """

    directory: Path
    limits: ResultLimits = attrs.field(factory=ResultLimits)
    caps: dict[str, int] = attrs.field(factory=dict)
    """Characters by tool, instead of the tool's own."""

    async def transform_results(self, agent: Agent, answers: Sequence[ToolAnswer]) -> Sequence[ToolAnswer]:
        """The answers with long ones replaced; all of them as they are when the disk refuses."""
        chosen = select_results([self._result(answer) for answer in answers], self.limits)
        if not chosen:
            return answers
        try:
            stored = await trio.to_thread.run_sync(store_results, chosen, self.directory, self.limits)
        except OSError as exc:
            agent.emit(LayerFailed(layer="tool results", reason=str(exc)))
            return answers
        agent.emit(
            ResultsStored(
                paths=[str(path) for path, _ in stored.values()],
                characters_before=sum(len(result.text) for result in chosen),
                characters_after=sum(len(text) for _, text in stored.values()),
            )
        )
        texts = {id_: text for id_, (_, text) in stored.items()}
        return [_replaced(answer, texts.get(answer.call["id"])) for answer in answers]

    def _result(self, answer: ToolAnswer) -> LongResult:
        cap = None if answer.tool is None or answer.tool.result_cap is None else answer.tool.result_cap
        cap = cap and self.caps.get(answer.call["name"], cap)
        return LongResult(id=answer.call["id"], text=answer.result.text, cap=cap)


def _replaced(answer: ToolAnswer, text: str | None) -> ToolAnswer:
    return answer if text is None else attrs.evolve(answer, result=attrs.evolve(answer.result, text=text))
