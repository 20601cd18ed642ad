"""Choice, by a model, of the memories that match a query, for `coterie memory recall`, which runs without a session.

The import of this module is slow, because it imports the Anthropic SDK.
"""

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import trio

from coterie.agents.errors import BudgetSpent, ModelError, ReplyMalformed
from coterie.agents.layers.recall_selection import RecallCaller, choose_memories
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.bm25 import RankedMemory
from coterie.memory.recall.recaller import Recaller
from coterie.orchestrator.processes.api_server_process import open_api_server

Take = Callable[[str, list[RankedMemory] | None, str], None]
"""Callback for the result of a query: the query, the memories or None on failure, and "model, cost" or the reason."""


async def recall_by_model(
    directory: Path, settings: RecallSettings, script: Path | None, queries: Iterable[str], take: Take
) -> None:
    """Ask a model for each query, one after the other, which memories of *directory* match, and call *take* with them.

    *script* is a file with the model's replies; None asks the real model. Scores are 1/1, 1/2, 1/3 ... by rank. Raises
    `ConfigInvalid` for an unknown model, `ApiServerFailed` for an unusable script, and `sqlite3.Error` for the index.
    """
    async with AsyncExitStack() as stack:
        recaller = stack.enter_context(closing(Recaller([directory], settings)))
        url, key = None, None
        if script is not None:
            server = await stack.enter_async_context(open_api_server(script))
            url, key = server.url, "embedded"
        client = await stack.enter_async_context(open_model_client(LocalGateway(), base_url=url, api_key=key))
        for number, query in enumerate(queries, 1):
            caller = RecallCaller(client=client, identity=Identity(), turn=number)
            take(query, *await _choose(caller, recaller, settings, query))


async def _choose(
    caller: RecallCaller, recaller: Recaller, settings: RecallSettings, query: str
) -> tuple[list[RankedMemory] | None, str]:
    model = known_models().get(settings.model)
    survey = await trio.to_thread.run_sync(recaller.survey, ())
    offered = await trio.to_thread.run_sync(recaller.candidates, query, survey, trio.from_thread.check_cancelled)
    if not offered:
        return [], ""
    try:
        names, cost = await choose_memories(caller, model, query, offered, settings.most)
    except (BudgetSpent, ModelError, ReplyMalformed) as exc:
        return None, str(exc)
    if names is None:
        return None, "the reply of the model is not a list of memory files; try again, or use --local"
    ranked = [RankedMemory(path=offered[name].path, score=1 / place) for place, name in enumerate(names, 1)]
    return ranked, f"{model.id}, ${format(cost, 'f')}"
