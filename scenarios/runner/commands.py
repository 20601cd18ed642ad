"""The commands of a story's user: real ones, in real processes."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import Session
from coterie.scenarios.runner.stage import Stage
from coterie.scenarios.runner.story import HumanAct, Step, Story

READ_BYTES = 65536
SESSION_SLOT = "{{session}}"
SHOWN = 200
"""Characters of what a command said that a failure repeats."""


def step_command(step: Step, story: Story, stage: Stage, session: Session | None) -> list[str]:
    """The command of *step*; *session* is the one that ran last."""
    streaming = _streaming(stage.script)
    if step.deed == "run":
        team = () if story.team is None else ("--team", str(stage.team))
        return coterie("run", step.text or story.task, *story.options, *team, *streaming)
    assert session is not None, "the first step is a run"
    if step.deed == "begin":
        return begin_command(step.to, story, stage, session)
    if step.deed == "mail":
        return coterie("mail", "send", step.text, "--to", step.to, "--session", session.id)
    message = (step.text,) if step.text else ()
    return coterie("resume", session.id, *message, *story.resume_options, *streaming)


def begin_command(name: str, story: Story, stage: Stage, before: Session) -> list[str]:
    """What begins the other session *name*; its task may speak of the one *before*."""
    other = story.sessions[name]
    task = other.task.replace(SESSION_SLOT, before.id)
    return coterie("run", task, *story.options, *_streaming(stage.script_of(name)))


def _streaming(script: Path) -> tuple[str, ...]:
    return "--script", str(script), "--output-format", "stream-json"


def human_command(act: HumanAct, observed: Observed, session: Session) -> list[str]:
    """The command of what the human does about *observed*."""
    match act.deed:
        case "approve" | "reject":
            feedback = ("--feedback", act.text) if act.text else ()
            return coterie("approvals", act.deed, str(observed.members["id"]), *feedback, "--session", session.id)
        case "mail":
            assert act.to is not None
            return coterie("mail", "send", act.text, "--to", act.to, "--session", session.id)
        case "stop":
            return coterie("stop", session.id, *(() if act.to is None else (act.to,)))
        case "release":
            return coterie("mail", "held", "--release", act.text, "--session", session.id)
        case "begin":
            raise AssertionError("a session is not one command among others")


def coterie(*arguments: str) -> list[str]:
    """Our own program."""
    return [sys.executable, "-P", "-m", "coterie", *arguments]


async def run_to_end(command: list[str], stage: Stage, hear: Callable[[bytes], None]) -> int:
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


async def do_for_human(act: HumanAct, observed: Observed, session: Session, stage: Stage) -> str | None:
    """Run the human's command; what it said if it failed, or None. Cancellation kills it."""
    if act.deed == "release" and not act.text:
        return await _release_all(act, observed, session, stage)
    said: list[bytes] = []
    status = await run_to_end(human_command(act, observed, session), stage, said.append)
    if status == 0:
        return None
    words = b" ".join(said) or stage.errors.read_bytes()[-SHOWN:]
    return f"the command ended with {status}: {words.decode(errors='replace').strip()[-SHOWN:]}"


async def _release_all(act: HumanAct, observed: Observed, session: Session, stage: Stage) -> str | None:
    with PostOffice.of(session, stage.clock) as office:
        letters = await office.held.letters()
    for letter in letters:
        if failure := await do_for_human(attrs.evolve(act, text=letter.id), observed, session, stage):
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
