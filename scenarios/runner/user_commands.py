"""Runs the commands of a scenario's user as real processes, and reads the events of the sessions that they start."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.scenarios.runner.event_pattern import agent_members
from coterie.scenarios.runner.scenario import Scenario, ScenarioStep, UserAction
from coterie.session_directory import SessionDirectory

SHOWN = 200
"""Maximum number of characters of a command's output in the text of a failure."""


def step_command(
    step: ScenarioStep, scenario: Scenario, environment: ScenarioEnvironment, session: SessionDirectory | None
) -> list[str]:
    """Return the command line of *step*; all steps except `run` refer to *session*, the session started last."""
    streaming = _streaming(environment.script)
    if step.action == "run":
        team = () if scenario.team is None else ("--team", str(environment.team))
        return own_program("run", step.text or scenario.task, *scenario.options, *team, *streaming)
    assert session is not None, "the first step is a run"
    if step.action == "begin":
        return second_session_command(step.to, scenario, environment, session)
    if step.action == "mail":
        return own_program("mail", "send", step.text, "--to", step.to, "--session", session.id)
    message = (step.text,) if step.text else ()
    return own_program("resume", session.id, *message, *scenario.resume_options, *streaming)


def second_session_command(
    name: str, scenario: Scenario, environment: ScenarioEnvironment, before: SessionDirectory
) -> list[str]:
    """Return the command of the additional session *name*; `{{session}}` in its task becomes the id of *before*."""
    other = scenario.sessions[name]
    task = other.task.replace("{{session}}", before.id)
    return own_program("run", task, *scenario.options, *_streaming(environment.script_of(name)))


def _streaming(script: Path) -> tuple[str, ...]:
    return "--script", str(script), "--output-format", "stream-json"


def action_command(action: UserAction, observed: SessionEvent, session: SessionDirectory) -> list[str]:
    """Return the command line for *action*, any but `begin`, in *session*, triggered by the event *observed*."""
    match action.action:
        case "approve" | "reject":
            feedback = ("--feedback", action.text) if action.text else ()
            verb, id_ = action.action, str(observed.members["id"])
            return own_program("approvals", verb, id_, *feedback, "--session", session.id)
        case "mail":
            assert action.to is not None
            return own_program("mail", "send", action.text, "--to", action.to, "--session", session.id)
        case "stop":
            return own_program("stop", session.id, *(() if action.to is None else (action.to,)))
        case "release":
            return own_program("mail", "held", "--release", action.text, "--session", session.id)
        case "begin":
            raise AssertionError("`begin` has no action command; call second_session_command for it")


def own_program(*arguments: str) -> list[str]:
    """Return the command line that runs `coterie` with *arguments*."""
    return [sys.executable, "-P", "-m", "coterie", *arguments]


async def run_command(command: list[str], environment: ScenarioEnvironment, on_line: Callable[[bytes], None]) -> int:
    """Run *command* in the workspace, pass each line of its output to *on_line*, and return its exit code.

    Cancellation kills the command. Its standard error is appended to the file `environment.errors`.
    """
    with environment.errors.open("ab") as errors:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=environment.project,
                    check=False,
                    start_new_session=True,
                    deliver_cancel=_kill,
                )
            )
            assert process.stdout is not None
            rest = b""
            async for chunk in process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    on_line(line)
            return await process.wait()


async def run_user_action(
    action: UserAction, observed: SessionEvent, session: SessionDirectory, environment: ScenarioEnvironment
) -> str | None:
    """Run the command of *action*; return an error text if it fails, else None. Cancellation kills the command."""
    if action.action == "release" and not action.text:
        return await _release_all(action, observed, session, environment)
    output: list[bytes] = []
    status = await run_command(action_command(action, observed, session), environment, output.append)
    if status == 0:
        return None
    text = b" ".join(output) or environment.errors.read_bytes()[-SHOWN:]
    return f"its command exited with {status}: {text.decode(errors='replace').strip()[-SHOWN:]}"


async def _release_all(
    action: UserAction, observed: SessionEvent, session: SessionDirectory, environment: ScenarioEnvironment
) -> str | None:
    with SessionMail.open(session, environment.clock) as mail:
        messages = await mail.held.messages()
    for message in messages:
        if failure := await run_user_action(attrs.evolve(action, text=message.id), observed, session, environment):
            return failure
    return None if messages else "the session had no held mail at that event"


async def _kill(process: trio.Process) -> None:
    process.kill()


@attrs.define(eq=False)
class SessionWatch:
    """Runs the commands of one session, and passes on the events that the session records."""

    _register: Callable[[bytes], SessionDirectory]
    """Function that is called with the first output line of the first command, and returns the session named there."""
    _follower: EventFollower | None = attrs.field(default=None, init=False)
    _session: SessionDirectory | None = attrs.field(default=None, init=False)
    _began: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(
        self,
        command: list[str],
        environment: ScenarioEnvironment,
        stack: AsyncExitStack,
        on_event: Callable[[SessionEvent], None],
    ) -> int:
        """Run *command* to its end, pass each event of the session to *on_event* meanwhile, and return the exit code.

        The event files stay open until *stack* closes. Cancellation kills the command.
        """
        async with trio.open_nursery() as watching:
            watching.start_soon(self._follow, stack, on_event)
            status = await run_command(command, environment, self._read_line)
            watching.cancel_scope.cancel()
        return status

    def drain(self) -> Iterator[SessionEvent]:
        """Yield the recorded events that `run` has not passed on, without waiting for more."""
        while self._follower is not None and (observed := self._follower.take_nowait()) is not None:
            yield observed

    def _read_line(self, line: bytes) -> None:
        if self._session is None:
            self._session = self._register(line)
            self._began.set()

    async def _follow(self, stack: AsyncExitStack, on_event: Callable[[SessionEvent], None]) -> None:
        if self._follower is None:
            await self._began.wait()
            assert self._session is not None
            self._follower = await stack.enter_async_context(open_follower(self._session.directory))
        async for observed in self._follower:
            on_event(observed)


def qualify_agent(name: str, agent: str) -> str:
    """Return the name of *agent* of session *name* in the scenario: `SESSION/AGENT`, or AGENT if *name* is empty."""
    return f"{name}/{agent}" if name else agent


def qualify_event(name: str, observed: SessionEvent) -> SessionEvent:
    """Return *observed* with all agent names as `SESSION/AGENT`, SESSION being *name*; unchanged if *name* is empty."""
    if not name:
        return observed
    renamed = {
        key: qualify_agent(name, observed.members[key])
        for key in agent_members(observed.kind)
        if observed.members.get(key) is not None
    }
    event = observed.event
    if isinstance(event, AgentChanged):
        event = msgspec.structs.replace(event, name=renamed["name"], parent=renamed.get("parent"))
    return attrs.evolve(observed, agent=renamed["agent"], event=event, members={**observed.members, **renamed})


def qualify_hop(name: str, hop: MessageHop) -> MessageHop:
    """Return *hop*, one step of a message in session *name*, with its mailbox name changed by `qualify_agent`."""
    return attrs.evolve(hop, mailbox=qualify_agent(name, hop.mailbox))
