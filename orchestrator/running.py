"""One task, one agent: what `coterie run` does once its options are understood.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.agent import Agent
from coterie.agents.conversation import TranscriptWriter, text_block
from coterie.agents.definitions import Definition
from coterie.agents.errors import ConfigInvalid, ReplyMalformed, TranscriptCorrupt
from coterie.agents.events import Decided, EventLog, Finished, Noticed, Started
from coterie.agents.gate import LocalGate
from coterie.agents.layers.mail import DeliverMail, with_mail
from coterie.agents.loop import close_open_calls, run_loop
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.model.request import Identity
from coterie.agents.models import Model
from coterie.agents.outcome import Ended, Limits
from coterie.agents.permissions import Asker, Authority, Decision
from coterie.agents.pipeline import layered_pipeline
from coterie.agents.tools.jobs import Jobs, open_jobs
from coterie.agents.tools.tool import JOBS_DIRECTORY, Workspace, WorkspaceChange
from coterie.agents.window import WindowMeter
from coterie.clock import Clock
from coterie.memory.instructions import Instructions
from coterie.orchestrator.assembly import (
    begin_conversation,
    context_text,
    instructions_of,
    layers_of,
    permissions_of,
    thresholds_of,
    tools_by_name,
)
from coterie.orchestrator.embedded import open_server
from coterie.orchestrator.events.sources import EVENT_LOG, TRANSCRIPT
from coterie.orchestrator.mailroom import open_mailroom
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.settings import Settings


@attrs.frozen(kw_only=True)
class Job:
    """A task and how it is to be done."""

    task: str
    """For a session that is resumed, what to say first; empty to go on where it stopped."""
    project: Path
    model: Model
    settings: Settings
    kind: Definition | None = None
    """What kind of agent does it."""
    session: Session | None = None
    """The session to resume; None begins a new one."""
    script: Path | None = None
    """Play the model from this file, on the embedded server, instead of asking the real one."""
    is_bare: bool = False
    """Without instruction files."""

    @property
    def has_instructions(self) -> bool:
        """Whether instruction files are read."""
        return self.settings.instructions.enabled and not self.is_bare


@attrs.frozen(kw_only=True)
class Done:
    """A finished job."""

    session: Session
    ended: Ended


@attrs.frozen(kw_only=True)
class OpenJob:
    """A job whose agent is ready to begin; nothing has been asked or told yet."""

    job: Job
    session: Session
    agent: Agent
    _mail: DeliverMail
    _instructions: Instructions | None

    async def run(self) -> Done:
        """Let the agent work until its run has ended. Raises `ReplyMalformed` and `OSError`.

        Cancellation stops at once, and what was recorded stays; the event of the end says so.
        """
        finished, given = _finished(Ended(reason="cancelled")), self.job.settings
        limits = Limits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.tell(_started(self))
        try:
            self._take_up()
            ended = await run_loop(self.agent, limits)
            finished = _finished(ended)
        except (ReplyMalformed, OSError) as exc:
            finished = msgspec.structs.replace(finished, reason="failed", error=str(exc))
            raise
        finally:
            self.agent.tell(finished)
        return Done(session=self.session, ended=ended)

    def _take_up(self) -> None:
        """Make the conversation end with something for the model to answer."""
        agent, job, instructions = self.agent, self.job, self._instructions
        close_open_calls(agent)
        if len(agent.conversation.messages) == 0:
            for note in () if instructions is None else instructions.notes:
                agent.tell(Noticed(source=note.source, reason=note.reason))
            context = context_text(job.project, agent.clock, instructions)
            agent.say("user", [text_block(context), text_block(job.task)])
        elif job.session is not None and job.task:
            # What others wrote while nobody worked comes along.
            waiting = self._mail.add(agent, ())
            agent.say("user", [*waiting.blocks, text_block(job.task)], *waiting.records)


@asynccontextmanager
async def open_job(job: Job, asker: Asker | None = None) -> AsyncIterator[OpenJob]:
    """Make a new session for *job*, or take up the one it resumes.

    Leaving the block ends what the agent left running. Raises `ConfigInvalid` without a key or for a session that
    cannot be resumed, `ServerFailed` when the embedded server does not start, and `OSError`.
    """
    clock = Clock.from_environment()
    permissions = permissions_of(job.settings, job.kind)
    instructions = await trio.to_thread.run_sync(instructions_of, job.project) if job.has_instructions else None
    async with _open_client(job) as client:
        kind = None if job.kind is None else job.kind.name
        session = job.session or Session.create(job.project, clock, task=job.task, model=job.model.id, agent=kind)
        directory = session.agent_directory(MAIN)
        with (
            _open_transcript(directory / TRANSCRIPT, clock) as transcript,
            EventLog.open(directory / EVENT_LOG, MAIN, clock) as log,
        ):
            _check_open_end(job, transcript)
            conversation = transcript.loaded.conversation or begin_conversation(
                job.settings, job.model, job.kind, is_embedded=job.script is not None
            )
            async with (
                open_mailroom(session, clock, transcript.loaded.mail, log.tell) as mail,
                open_jobs(directory / JOBS_DIRECTORY) as jobs,
            ):
                tools = tools_by_name()
                agent = Agent(
                    identity=Identity(agent=MAIN, incarnation=session.starts),
                    model=job.model,
                    client=client,
                    conversation=conversation,
                    transcript=transcript,
                    tools=tools,
                    workspace=_workspace(job.project, directory, transcript, jobs),
                    denial=Authority(permissions, asker, lambda decision: log.tell(_decided(decision))).denial,
                    meter=WindowMeter(thresholds_of(job.settings, job.model)),
                    pipeline=with_mail(
                        layered_pipeline(layers_of(job.settings, conversation.header), tools, directory), mail
                    ),
                    clock=clock,
                    tell=log.tell,
                    durability=job.settings.transcript.fsync,
                )
                yield OpenJob(job=job, session=session, agent=agent, mail=mail, instructions=instructions)


def _check_open_end(job: Job, transcript: TranscriptWriter) -> None:
    begun = transcript.loaded.conversation
    is_answered = begun is not None and begun.messages and not begun.open_tool_uses
    if is_answered and begun is not None and begun.messages[-1].role == "assistant" and not job.task:
        name = job.session.id if job.session else "the session"
        raise ConfigInvalid("session", f"{name} has ended; say what to do next to go on")


@asynccontextmanager
async def _open_client(job: Job) -> AsyncIterator[ModelClient]:
    gate = LocalGate(budget=job.settings.max_budget_usd)
    if job.script is None:
        async with open_model_client(gate) as client:
            yield client
        return
    async with (
        open_server(job.script) as server,
        open_model_client(gate, base_url=server.url, api_key="embedded") as client,
    ):
        yield client


def _open_transcript(path: Path, clock: Clock) -> TranscriptWriter:
    try:
        return TranscriptWriter.open(path, clock)
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(path), f"is damaged, {exc}; nothing was changed") from exc


def _workspace(root: Path, scratch: Path, transcript: TranscriptWriter, jobs: Jobs) -> Workspace:
    workspace = Workspace(root=root, scratch=scratch, jobs=jobs)
    for state in transcript.loaded.states:
        workspace.restore(WorkspaceChange(seen=state.seen, directory=state.directory))
    return workspace


def _started(opened: OpenJob) -> Started:
    job, agent = opened.job, opened.agent
    return Started(
        session=opened.session.id,
        incarnation=opened.session.starts,
        model=job.model.id,
        permission_mode=job.settings.permissions.mode,
        project=str(job.project),
        tools=list(agent.tools),
        definition=None if job.kind is None else job.kind.name,
    )


def _decided(decision: Decision) -> Decided:
    return Decided(tool=decision.tool, verdict=decision.verdict, by=decision.by, reason=decision.reason)


def _finished(ended: Ended) -> Finished:
    return Finished(
        reason=ended.reason,
        result=ended.text,
        turns=ended.turns,
        usage=attrs.asdict(ended.usage),
        cost_usd=format(ended.cost, "f"),
        error=None if ended.error is None else str(ended.error),
    )
