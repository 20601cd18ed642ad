"""What `coterie demo` prints: an agent at work, then forks turn by turn, and the bill, checked against the server's."""

import json
from decimal import Decimal

import click
import trio
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.agents.models import known_models
from coterie.orchestrator.embedded import ServerFailed
from coterie.scenarios.demo.bugfix import TASK, play_bugfix
from coterie.scenarios.demo.story import MODEL, QUESTION, Story, Turn, open_story


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what came of it, and the bill, as JSON.")
def command(*, as_json: bool) -> None:
    """Show an agent that fixes a bug; then a conversation, two forks of it, and what each turn cost.

    Everything is real but the model: its replies come from a script, over HTTP, from the embedded server.
    """
    known_models()  # a table of models that cannot be read is the user's to mend, before anything starts
    turns: list[Turn] = []
    console = Console(quiet=as_json, highlight=False)
    try:
        console.print(f"[bold]1.[/] an agent in a scratch repository: {TASK}\n")
        fix = play_bugfix(as_json=as_json)
        console.print("\n[bold]2.[/] a lead and two forks of it\n")
        trio.run(_play, turns, console)
    except (ServerFailed, RuntimeError) as exc:
        raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps({"fix": fix, "bill": [_row(turn) for turn in turns]}))


async def _play(turns: list[Turn], console: Console) -> None:
    def tell(turn: Turn) -> None:
        turns.append(turn)
        _print_turn(console, turn)

    console.print("[dim]starting the embedded Messages API server ...[/]")
    async with open_story(tell) as story:
        console.print(f"[dim]{MODEL} on {story.server.url}, process {story.server.pid}; no key, no network[/]\n")
        console.print(f"[bold]user[/] {QUESTION}\n")
        lead = await story.ask_lead()
        console.print("[dim]two forks start from the lead's conversation, byte for byte, plus one directive each[/]\n")
        await story.ask_forks(lead)
        console.print(_bill(turns))
        await _check_bill(console, story)


def _print_turn(console: Console, turn: Turn) -> None:
    console.print(f"[bold]{turn.agent}[/]", escape(turn.reply.text))
    for call in turn.reply.tool_calls:
        arguments = ", ".join(f"{key}={value!r}" for key, value in call["input"].items())
        console.print(f"  [cyan]{call['name']}[/]({escape(arguments)})")
    console.print()


def _bill(turns: list[Turn]) -> Table:
    total = sum((turn.cost for turn in turns), Decimal(0))
    table = Table(title="the bill, in tokens and dollars", title_justify="left", show_footer=True, box=SIMPLE_HEAD)
    table.add_column("agent", no_wrap=True)
    table.add_column("turn", justify="right")
    for name in ("read", "written", "input", "output", "cached"):
        table.add_column(name, justify="right")
    table.add_column("dollars", justify="right", footer=f"{total:.6f}", no_wrap=True)
    for turn in turns:
        used = turn.reply.usage
        counts = [f"{count:,}" for count in (used.read, used.write_5m + used.write_1h, used.input, used.output)]
        share = f"{100 * used.read / used.prompt:.0f} %"
        table.add_row(turn.agent, str(turn.turn), *counts, share, f"{turn.cost:.6f}")
    return table


async def _check_bill(console: Console, story: Story) -> None:
    """Hold our sum against the server's request log, which was kept in another process."""
    log = await story.server.requests()
    theirs = sum((Decimal(entry["cost_usd"]) for entry in log), Decimal(0))
    verdict = "equal to" if theirs == story.gate.spent else "NOT equal to"
    console.print(f"{len(log)} requests; our sum is {verdict} the server's own: ${theirs:f}")


def _row(turn: Turn) -> dict[str, object]:
    used = turn.reply.usage
    return {
        "agent": turn.agent,
        "turn": turn.turn,
        "read": used.read,
        "written": used.write_5m + used.write_1h,
        "input": used.input,
        "output": used.output,
        "cost_usd": format(turn.cost, "f"),
        "text": turn.reply.text,
    }
