"""Recall of memories by a model, for a command without a session.

This module imports the SDK.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ModelError, ReplyMalformed
from coterie.agents.layers.recall_selection import RecallCaller, choose_memories
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway_protocol import LocalGateway
from coterie.agents.loop.model.request import Identity
from coterie.memory.layer_settings import RecallSettings
from coterie.memory.recall.bm25 import RankedMemory
from coterie.memory.recall.recaller import Recaller
from coterie.orchestrator.processes.api_server_process import open_api_server

Take = Callable[[str, list[RankedMemory] | None, str], None]
"""Called for each query with the chosen memories, or with None and the reason why the model chose none."""


@attrs.frozen(kw_only=True)
class ModelRecall:
    """Asks a model which memories of one directory match a query."""

    directory: Path
    settings: RecallSettings
    script: Path | None = None
    """Script with the model's replies; None for the real model."""

    async def ask(self, queries: Iterable[str], take: Take) -> None:
        """Ask about each query in turn, and pass the result to *take*.

        Scores only give the order. Raises `ConfigInvalid` for an unknown model, `ApiServerFailed`, and `sqlite3.Error`
        if the candidates cannot be selected.
        """
        recaller = Recaller([self.directory], self.settings)
        try:
            async with self._client() as client:
                for number, query in enumerate(queries, 1):
                    caller = RecallCaller(client=client, identity=Identity(), turn=number)
                    await self._ask(caller, recaller, query, take)
        finally:
            recaller.close()

    async def _ask(self, caller: RecallCaller, recaller: Recaller, query: str, take: Take) -> None:
        model = known_models().get(self.settings.model)
        survey = await trio.to_thread.run_sync(recaller.survey, ())
        offered = await trio.to_thread.run_sync(recaller.candidates, query, survey, trio.from_thread.check_cancelled)
        if not offered:
            take(query, [], "")
            return
        try:
            names, cost = await choose_memories(caller, model, query, offered, self.settings.most)
        except (BudgetSpent, ModelError, ReplyMalformed) as exc:
            take(query, None, str(exc))
            return
        if names is None:
            take(query, None, "its answer names no memories")
            return
        ranked = [RankedMemory(path=offered[name].path, score=1 / place) for place, name in enumerate(names, 1)]
        take(query, ranked, f"{model.id}, ${format(cost, 'f')}")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[ModelClient]:
        if self.script is None:
            async with open_model_client(LocalGateway()) as client:
                yield client
            return
        async with (
            open_api_server(self.script) as server,
            open_model_client(LocalGateway(), base_url=server.url, api_key="embedded") as client,
        ):
            yield client
