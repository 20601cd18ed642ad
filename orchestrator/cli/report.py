"""What a person, or a program, sees of a run."""

import json

import attrs
import click

from coterie.agents.errors import ModelUnreachable
from coterie.agents.outcome import Ended, ReplyArrived, Step, ToolEnded
from coterie.orchestrator.cli.exit_codes import ExitCode
from coterie.orchestrator.running import NAME, TRANSCRIPT, Done

SHOWN = 100
"""Characters of a call's arguments that a line of progress shows."""


@attrs.frozen(kw_only=True)
class Report:
    """Prints a run: what the agent says on standard output, what it does on standard error."""

    is_json: bool
    only_result: bool

    def tell(self, step: Step) -> None:
        """Print one step, unless the result alone is wanted."""
        if self.is_json or self.only_result:
            return
        if isinstance(step, ReplyArrived):
            if step.reply.text:
                click.echo(step.reply.text)
        else:
            click.echo(click.style(_tool_line(step), dim=True), err=True)

    def finish(self, done: Done) -> None:
        """Print the end of the run."""
        if self.is_json:
            click.echo(json.dumps(_summary(done)))
        elif self.only_result:
            click.echo(done.ended.text)
        else:
            click.echo(click.style(_status_line(done), dim=True), err=True)
        if done.ended.error is not None and not self.is_json:
            click.echo(f"Error: {done.ended.error}", err=True)

    def exit_code(self, done: Done) -> ExitCode:
        """How the process ends."""
        if done.ended.reason == "completed":
            return ExitCode.DONE
        is_away = isinstance(done.ended.error, ModelUnreachable)
        return ExitCode.MODEL_UNREACHABLE if is_away else ExitCode.FAILED


def _tool_line(step: ToolEnded) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in step.call["input"].items())
    shown = arguments if len(arguments) <= SHOWN else arguments[:SHOWN] + "..."
    reason = f": {step.result.text.splitlines()[0][:SHOWN]}" if step.result.is_error and step.result.text else ""
    return f"  {step.call['name']}({shown})  {'failed' if step.result.is_error else 'ok'}{reason}  {step.seconds:.1f} s"


def _status_line(done: Done) -> str:
    ended = done.ended
    share = 100 * ended.usage.read / ended.usage.prompt if ended.usage.prompt else 0
    return (
        f"{ended.reason} after {_turns(ended)}; {ended.usage.prompt:,} tokens in, {share:.0f} % of them from cache, "
        f"{ended.usage.output:,} out, ${ended.cost:.6f}; session {done.session.id}"
    )


def _turns(ended: Ended) -> str:
    return "1 turn" if ended.turns == 1 else f"{ended.turns} turns"


def _summary(done: Done) -> dict[str, object]:
    ended = done.ended
    return {
        "session_id": done.session.id,
        "transcript": str(done.session.agent_directory(NAME) / TRANSCRIPT),
        "reason": ended.reason,
        "result": ended.text,
        "turns": ended.turns,
        "usage": attrs.asdict(ended.usage),
        "cost_usd": format(ended.cost, "f"),
        "error": None if ended.error is None else str(ended.error),
    }
