"""Commands of the user of a scenario, run as real processes."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.events.event_reader import SessionEvent
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.scenarios.runner.environment import ScenarioEnvironment
from coterie.scenarios.runner.scenario import Scenario, ScenarioStep, UserAction
from coterie.session_directory import SessionDirectory

READ_BYTES = 65536
SESSION_SLOT = "{{session}}"
SHOWN = 200
"""Characters of what a command said that a failure repeats."""


def step_command(
    step: ScenarioStep, story: Scenario, stage: ScenarioEnvironment, session: SessionDirectory | None
) -> list[str]:
    """The command of *step*; *session* is the one that ran last."""
    streaming = _streaming(stage.script)
    if step.deed == "run":
        team = () if story.team is None else ("--team", str(stage.team))
        return own_program("run", step.text or story.task, *story.options, *team, *streaming)
    assert session is not None, "the first step is a run"
    if step.deed == "begin":
        return second_session_command(step.to, story, stage, session)
    if step.deed == "mail":
        return own_program("mail", "send", step.text, "--to", step.to, "--session", session.id)
    message = (step.text,) if step.text else ()
    return own_program("resume", session.id, *message, *story.resume_options, *streaming)


def second_session_command(
    name: str, story: Scenario, stage: ScenarioEnvironment, before: SessionDirectory
) -> list[str]:
    """What begins the other session *name*; its task may speak of the one *before*."""
    other = story.sessions[name]
    task = other.task.replace(SESSION_SLOT, before.id)
    return own_program("run", task, *story.options, *_streaming(stage.script_of(name)))


def _streaming(script: Path) -> tuple[str, ...]:
    return "--script", str(script), "--output-format", "stream-json"


def action_command(act: UserAction, observed: SessionEvent, session: SessionDirectory) -> list[str]:
    """The command of what the human does about *observed*."""
    match act.deed:
        case "approve" | "reject":
            feedback = ("--feedback", act.text) if act.text else ()
            return own_program("approvals", act.deed, str(observed.members["id"]), *feedback, "--session", session.id)
        case "mail":
            assert act.to is not None
            return own_program("mail", "send", act.text, "--to", act.to, "--session", session.id)
        case "stop":
            return own_program("stop", session.id, *(() if act.to is None else (act.to,)))
        case "release":
            return own_program("mail", "held", "--release", act.text, "--session", session.id)
        case "begin":
            raise AssertionError("a session is not one command among others")


def own_program(*arguments: str) -> list[str]:
    """Our own program."""
    return [sys.executable, "-P", "-m", "coterie", *arguments]


async def run_command(command: list[str], stage: ScenarioEnvironment, hear: Callable[[bytes], None]) -> int:
    """Run *command* on *stage*, and let each line of its output be heard; its status.

    Cancellation kills it. What it says on standard error is in the stage's log.
    """
    with stage.errors.open("ab") as errors:
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=stage.project,
                    check=False,
                    start_new_session=True,
                    deliver_cancel=_kill,
                )
            )
            assert process.stdout is not None
            await _read_lines(process.stdout, hear)
            return await process.wait()


async def run_user_action(
    act: UserAction, observed: SessionEvent, session: SessionDirectory, stage: ScenarioEnvironment
) -> str | None:
    """Run the human's command; what it said if it failed, or None. Cancellation kills it."""
    if act.deed == "release" and not act.text:
        return await _release_all(act, observed, session, stage)
    said: list[bytes] = []
    status = await run_command(action_command(act, observed, session), stage, said.append)
    if status == 0:
        return None
    words = b" ".join(said) or stage.errors.read_bytes()[-SHOWN:]
    return f"the command ended with {status}: {words.decode(errors='replace').strip()[-SHOWN:]}"


async def _release_all(
    act: UserAction, observed: SessionEvent, session: SessionDirectory, stage: ScenarioEnvironment
) -> str | None:
    with SessionMail.open(session, stage.clock) as office:
        letters = await office.held.messages()
    for letter in letters:
        if failure := await run_user_action(attrs.evolve(act, text=letter.id), observed, session, stage):
            return failure
    return None if letters else "no mail was held"


async def _read_lines(stream: trio.abc.ReceiveStream, hear: Callable[[bytes], None]) -> None:
    rest = b""
    while chunk := await stream.receive_some(READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            hear(line)


async def _kill(process: trio.Process) -> None:
    process.kill()
