"""One task, one agent: what `coterie run` does once its options are understood.

Importing this module imports the SDK.
"""

import platform
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from coterie.agents.conversation import Conversation, KeyHeader, TranscriptWriter, text_block
from coterie.agents.errors import ConfigInvalid, TranscriptCorrupt
from coterie.agents.gate import LocalGate
from coterie.agents.loop import Agent, close_open_calls, run_loop
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.model.request import Identity
from coterie.agents.models import Model
from coterie.agents.outcome import Ended, Step
from coterie.agents.permissions import Mode, Permissions
from coterie.agents.prompt import render
from coterie.agents.tools import BUILT_IN
from coterie.agents.tools.tool import Workspace, definition
from coterie.clock import Clock
from coterie.orchestrator.embedded import open_server
from coterie.orchestrator.session import Session

NAME = "main"
TRANSCRIPT = "transcript.jsonl"


@attrs.frozen(kw_only=True)
class Job:
    """A task and how it is to be done."""

    task: str
    """For a session that is resumed, what to say first; empty to go on where it stopped."""
    project: Path
    model: Model
    max_turns: int
    mode: Mode
    session: Session | None = None
    """The session to resume; None begins a new one."""
    script: Path | None = None
    """Play the model from this file, on the embedded server, instead of asking the real one."""


@attrs.frozen(kw_only=True)
class Done:
    """A finished job."""

    session: Session
    ended: Ended


async def run_job(job: Job, tell: Callable[[Step], None]) -> Done:
    """Do *job*, in a new session or in the one it resumes; every step is told when it is recorded.

    Cancellation stops at once, and what was recorded stays. Raises `ConfigInvalid` without a key or for a session
    that cannot be resumed, `ServerFailed` when the embedded server does not start, `ReplyMalformed` and `OSError`.
    """
    clock = Clock.from_environment()
    async with _open_client(job) as client:
        session = job.session or Session.create(job.project, clock, task=job.task, model=job.model.id)
        directory = session.agent_directory(NAME)
        with _open_transcript(directory / TRANSCRIPT) as transcript:
            agent = Agent(
                identity=Identity(agent=NAME, incarnation=session.starts),
                model=job.model,
                client=client,
                conversation=transcript.loaded.conversation or _begin(job.model),
                transcript=transcript,
                tools={tool.name: tool for tool in BUILT_IN},
                workspace=Workspace(root=job.project, scratch=directory),
                permissions=Permissions(mode=job.mode),
                tell=tell,
            )
            _take_up(agent, job, clock)
            return Done(session=session, ended=await run_loop(agent, max_turns=job.max_turns))


def _take_up(agent: Agent, job: Job, clock: Clock) -> None:
    """Make the conversation end with something for the model to answer."""
    close_open_calls(agent)
    messages = agent.conversation.messages
    if not messages:
        agent.say("user", [text_block(_context(job, clock)), text_block(job.task)])
    elif job.session is not None and job.task:
        agent.say("user", [text_block(job.task)])
    elif messages[-1].role == "assistant":
        raise ConfigInvalid("session", f"{job.session and job.session.id} has ended; say what to do next to go on")


@asynccontextmanager
async def _open_client(job: Job) -> AsyncIterator[ModelClient]:
    if job.script is None:
        async with open_model_client(LocalGate()) as client:
            yield client
        return
    async with (
        open_server(job.script) as server,
        open_model_client(LocalGate(), base_url=server.url, api_key="embedded") as client,
    ):
        yield client


def _open_transcript(path: Path) -> TranscriptWriter:
    try:
        return TranscriptWriter.open(path)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"is damaged, {exc}; nothing was changed") from exc


def _begin(model: Model) -> Conversation:
    tools = [definition(tool) for tool in BUILT_IN]
    return Conversation.begin(KeyHeader(model=model.id), tools=tools, system=[text_block(render("agent"))])


def _context(job: Job, clock: Clock) -> str:
    # Read once, when the session begins: a date that changed overnight would break the prefix.
    date = time.strftime("%Y-%m-%d", time.localtime(clock.now()))
    return render("context", directory=str(job.project), platform=platform.system(), date=date)
