"""Duration of a Grep over the installed packages with ripgrep relative to pure Python.

Both execute the same calls in turns, including the walk through the directory; the best of several runs counts.
"""

import os
import shutil
import sysconfig
from pathlib import Path

import trio

from benchmarks.figures import Figure, Goal, at_least
from benchmarks.package_calls import PACKAGES
from coterie.agents.tools.files.directory_walk import list_files
from coterie.agents.tools.search.grep import Grep, GrepInput
from coterie.agents.tools.tool import Workspace

ROUNDS = 5
CALLS: tuple[tuple[str, GrepInput, Goal | None], ...] = (
    ("a word found nowhere", GrepInput(pattern="zyxwvut_nowhere"), at_least(2)),
    ("a rare expression", GrepInput(pattern=r"\bdef\s+\w+_frozen\("), at_least(2)),
    ("a word in any case", GrepInput(pattern="(?i)kelvin"), at_least(2)),
    ("a common word, to the limit", GrepInput(pattern="import", output_mode="content"), at_least(0.8)),
    ("a word in some files, all of them", GrepInput(pattern="TODO", output_mode="count", head_limit=10_000), None),
    ("a word in most files, all of them", GrepInput(pattern="import", head_limit=10_000), None),
)


async def measure() -> list[Figure]:
    """Measure each call with both, and return the speedup of ripgrep."""
    program = shutil.which("rg", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    if program is None:
        return [Figure(name="ripgrep is not installed", value=0, unit="")]
    listing = await list_files(PACKAGES)
    figures = [Figure(name="files", value=len(listing.names), unit="", digits=0)]
    for name, call, goal in CALLS:
        quick, plain = await _race(Grep(ripgrep=program), Grep(ripgrep=None), call)
        figures += [
            Figure(name=f"{name}: with ripgrep", value=quick, unit="s", digits=3),
            Figure(name=f"{name}: Python alone", value=plain, unit="s", digits=3),
            Figure(name=f"{name}: faster by", value=plain / quick, unit="times", digits=1, goal=goal),
        ]
    return figures


async def _race(quick: Grep, plain: Grep, call: GrepInput) -> tuple[float, float]:
    """Return the best seconds of both, which must give the same result."""
    workspace = Workspace(root=PACKAGES, scratch=Path(os.devnull))
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        answers = []
        for place, tool in enumerate((quick, plain)):
            began = trio.current_time()
            answers.append(await tool.run(call, workspace))
            best[place] = min(best[place], trio.current_time() - began)
        assert answers[0] == answers[1], f"two answers to {call}"
    return best[0], best[1]
