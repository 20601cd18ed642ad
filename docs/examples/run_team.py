"""Run a team from a program: print the activity of its agents, approve their plans, and print the result.

Without a key, in an empty directory:

    python run_team.py --script pair-script.yaml "Write down in notes.md what is needed for the trip."

The default team is pair.toml in this directory; `coterie run --team pair.toml` runs the same team.
"""

import argparse
import sys
from pathlib import Path

import trio

import coterie

HERE = Path(__file__).parent
# ruff: noqa: T201 - an example prints


async def run(task: str, team: Path, script: Path | None) -> coterie.SessionResult:
    """Run *task* with the *team* in the current directory."""
    async with (
        coterie.open_session(task, team=team, script=script, permission_mode="acceptEdits") as session,
        session.events() as events,
    ):
        print(f"session {session.id}")
        async for observed in events:
            await handle(session, observed)
        return await session.wait()


async def handle(session: coterie.LiveSession, observed: coterie.SessionEvent) -> None:
    """Print an event, and approve a plan if it changes only notes."""
    match observed.event:
        case coterie.AgentChanged(name=name, state=state):
            print(f"{name} is {state}")
        case coterie.ToolStarted(name=tool):
            print(f"{observed.agent} calls {tool}")
        case coterie.ApprovalAsked(id=asked, name=name):
            [approval] = [each for each in await session.approvals() if each.id == asked]
            is_harmless = all(path.endswith(".md") for path in approval.claim.files)
            print(f"{name} plans: {approval.claim.plan}")
            await session.decide(asked, approve=is_harmless, feedback="" if is_harmless else "Only change notes.")


def main() -> int:
    """Run the task of the command line."""
    parser = argparse.ArgumentParser(description="Run a team from a program.")
    parser.add_argument("task")
    parser.add_argument("--team", type=Path, default=HERE / "pair.toml")
    parser.add_argument("--script", type=Path, help="take the replies of the model from this file, without a key")
    options = parser.parse_args()
    try:
        result = trio.run(run, options.task, options.team, options.script)
    except coterie.AgentError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2 if isinstance(error, coterie.ConfigInvalid) else 1
    states = ", ".join(f"{agent.name} {agent.state}" for agent in result.agents)
    print(f"{result.reason} after {result.turns} turns for ${result.session_cost:.4f}: {states}")
    print(result.text)
    return 0 if result.is_done else 1


if __name__ == "__main__":
    sys.exit(main())
