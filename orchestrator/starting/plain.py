"""The plain starter: every child is a new interpreter. Slow, but there is nothing to keep warm."""

import os
from collections.abc import Sequence

import attrs

from coterie.orchestrator.starting.birth import Birth
from coterie.orchestrator.starting.child import Child
from coterie.orchestrator.starting.passage import open_passage
from coterie.orchestrator.starting.program import start_program
from coterie.orchestrator.starting.starter import Start, failing_as_start

PROGRAM = "coterie.orchestrator.starting.plain_child"


@attrs.frozen
class PlainStarter:
    """Starts children as any program is started, on the main thread."""

    async def start(
        self, start: Start, descriptors: Sequence[int] = (), *, stdout: int | None = None, stderr: int | None = None
    ) -> Child:
        """As `Starter.start`. What /proc shows of the child's environment is the start's."""
        with failing_as_start(), open_passage(start, descriptors, stdout, stderr) as passage:
            numbers = passage.passed.numbers
            child = start_program(
                PROGRAM,
                [str(os.getpid()), *map(str, numbers)],
                passed=numbers,
                environment=start.environment,
                stderr=passage.passed.stderr,
            )
            passage.let_go()
            return await Birth(passage.reports, child).ready()
