"""Recall of memories by a model, for a command without a session.

This module imports the SDK.
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
"""Called for each query with the chosen memories, or with None and the reason why the model chose none."""


async def recall_by_model(
    directory: Path, settings: RecallSettings, script: Path | None, queries: Iterable[str], take: Take
) -> None:
    """Ask a model about each query in turn which memories of *directory* match, and pass the result to *take*.

    *script* holds the model's replies; None asks the real model. Scores only give the order. Raises `ConfigInvalid` for
    an unknown model, `ApiServerFailed`, and `sqlite3.Error` if the candidates cannot be selected.
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
        return None, "its answer names no memories"
    ranked = [RankedMemory(path=offered[name].path, score=1 / place) for place, name in enumerate(names, 1)]
    return ranked, f"{model.id}, ${format(cost, 'f')}"
