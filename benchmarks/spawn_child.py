"""Entry functions of processes in the spawn benchmark: one turn with the model, or nothing."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs
import msgspec
import trio

from coterie.orchestrator.processes.process_starters import AGENT_PRELOADS
from coterie.orchestrator.processes.zygote import prepare

if TYPE_CHECKING:
    from coterie.agents.loop.model.client import ModelClient


MODEL = "claude-opus-5-5"
MODULES = tuple(name.partition(":")[0] for name in AGENT_PRELOADS)
"""Modules that a process imports unless it is forked from a zygote."""
ASKING = b'{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}'


@attrs.frozen(kw_only=True)
class Task:
    """Parameters of a child."""

    url: str
    report: str = ""
    """File for its memory figures; None skips this slow measurement."""


@attrs.frozen(kw_only=True)
class Memory:
    """Bytes of a process that no other process shares."""

    before: int
    """At its entry."""
    after: int
    """After its first turn."""

    @classmethod
    def read(cls, report: Path) -> Self:
        """Read the figures that a child wrote there."""
        return msgspec.json.decode(report.read_bytes(), type=cls)


def take_a_turn(payload: bytes, _descriptors: Sequence[int] = ()) -> None:
    """Send one request to the model."""
    task = msgspec.json.decode(payload, type=Task)
    before = _private_bytes() if task.report else 0
    trio.run(_ask, task.url)
    if task.report:
        Path(task.report).write_bytes(msgspec.json.encode(Memory(before=before, after=_private_bytes())))


def stay_idle(payload: bytes, descriptors: Sequence[int]) -> None:
    """Open a client, report readiness on the first descriptor, and wait for the end."""
    trio.run(_stay, msgspec.json.decode(payload, type=Task).url, descriptors[0])


async def _ask(url: str) -> None:
    async with _open_client(url) as client:
        from coterie.agents.loop.model.catalog import known_models  # noqa: PLC0415
        from coterie.agents.loop.model.request import ModelRequest  # noqa: PLC0415 - see _open_client

        request = ModelRequest(body=ASKING, model=known_models().get(MODEL), max_tokens=8_000, prompt_tokens=10)
        await client.ask(request)


async def _stay(url: str, descriptor: int) -> None:
    async with _open_client(url):
        os.write(descriptor, b".")
        await trio.sleep_forever()


@asynccontextmanager
async def _open_client(url: str) -> AsyncIterator["ModelClient"]:
    """Open a client after the imports of an agent; for a cold process they are part of the measured time."""
    prepare(MODULES)
    from coterie.agents.loop.model.client import open_model_client  # noqa: PLC0415
    from coterie.agents.loop.model.gateway_protocol import LocalGateway  # noqa: PLC0415

    async with open_model_client(LocalGateway(), base_url=url, api_key="benchmark") as client:
        yield client


def _private_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
