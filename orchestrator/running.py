"""One task, one agent, in this process: what `coterie run` does once its options are understood.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs

from coterie.agents.conversation import TranscriptWriter
from coterie.agents.errors import ConfigInvalid
from coterie.agents.gate import Gate, LocalGate
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.permissions import Asker
from coterie.clock import Clock
from coterie.orchestrator.embedded import open_server
from coterie.orchestrator.ledger import LEDGER, Ledger, LedgerGate
from coterie.orchestrator.mailroom import open_mailroom
from coterie.orchestrator.root_record import open_root_record
from coterie.orchestrator.seat import Work, open_seat
from coterie.orchestrator.session import Session
from coterie.orchestrator.worker import Worker, open_worker


@attrs.frozen(kw_only=True)
class Job(Work):
    """Work, and the session it belongs to."""

    session: Session | None = None
    """The session to resume; None begins a new one."""
    script: Path | None = None
    """Play the model from this file, on the embedded server, instead of asking the real one."""
    is_embedded: bool = attrs.field(init=False, default=attrs.Factory(lambda self: self.script is not None, True))  # noqa: FBT003


@asynccontextmanager
async def open_job(job: Job, asker: Asker | None = None) -> AsyncIterator[Worker]:
    """Make a new session for *job*, or take up the one it resumes.

    Leaving the block ends what the agent left running. Raises `ConfigInvalid` without a key or for a session that
    cannot be resumed, `ServerFailed` when the embedded server does not start, and `OSError`.
    """
    clock = Clock.from_environment()
    gate = LocalGate(budget=job.settings.max_budget_usd)
    async with AsyncExitStack() as stack:
        # Before anything is written: without a model there is no session.
        client = await stack.enter_async_context(_open_client(job, gate))
        session = job.session or _begin_session(job, clock)
        stack.enter_context(open_root_record(session, clock))
        seat = stack.enter_context(open_seat(session, clock, incarnation=session.starts))
        _check_open_end(job, seat.transcript)
        ledger = stack.enter_context(Ledger.open(session.directory / LEDGER))
        books = LedgerGate(gate=gate, ledger=ledger, clock=clock, incarnation=session.starts)
        mail = open_mailroom(session, clock, seat.transcript.loaded.mail, seat.log.tell)
        room = await stack.enter_async_context(mail)
        yield await stack.enter_async_context(open_worker(job, seat, room, client.through(books), asker=asker))


def _begin_session(job: Job, clock: Clock) -> Session:
    kind = None if job.kind is None else job.kind.name
    return Session.create(job.project, clock, task=job.task, model=job.model.id, agent=kind)


def _check_open_end(job: Job, transcript: TranscriptWriter) -> None:
    begun = transcript.loaded.conversation
    is_answered = begun is not None and begun.messages and not begun.open_tool_uses
    if is_answered and begun is not None and begun.messages[-1].role == "assistant" and not job.task:
        name = job.session.id if job.session else "the session"
        raise ConfigInvalid("session", f"{name} has ended; say what to do next to go on")


@asynccontextmanager
async def _open_client(job: Job, gate: Gate) -> AsyncIterator[ModelClient]:
    if job.script is None:
        async with open_model_client(gate) as client:
            yield client
        return
    async with (
        open_server(job.script) as server,
        open_model_client(gate, base_url=server.url, api_key="embedded") as client,
    ):
        yield client
