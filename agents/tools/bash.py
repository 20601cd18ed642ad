"""The Bash tool: a command, what it printed, and how it ended."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.capped import CappedText
from coterie.agents.tools.schema import described
from coterie.agents.tools.shell import run_shell
from coterie.agents.tools.tool import Access, ToolResult, Workspace, tool_description

DEFAULT_TIMEOUT = 120.0
LONGEST_TIMEOUT = 600.0
KEPT = 14_900
"""Characters of the output that are kept at its beginning, and again at its end: with a note and an exit code less than
30,000, over which a result leaves the conversation for the disk."""
GRACE = 2.0

SECRET_PREFIX = "ANTHROPIC_"  # noqa: S105 - how names begin, not a secret
SECRETS = frozenset({"COTERIE_CONTROL_TOKEN"})


@attrs.frozen(kw_only=True)
class BashInput:
    """What to run, and for how long."""

    command: str = attrs.field(metadata=described("The command, as one would type it."))
    timeout: float = attrs.field(
        default=DEFAULT_TIMEOUT,
        metadata=described(f"Seconds after which the command is killed, at most {LONGEST_TIMEOUT:g}."),
    )
    description: str | None = attrs.field(
        default=None, metadata=described("What the command does, in five to ten words, for the people who watch.")
    )


@attrs.frozen(kw_only=True)
class Bash:
    """Runs commands, each in a shell of its own."""

    name: ClassVar = "Bash"
    description: ClassVar = tool_description("bash")
    input_type: ClassVar = BashInput
    access: ClassVar[Access] = "run"
    is_clearable: ClassVar = True

    grace: float = GRACE
    """Seconds between asking a command to end and killing it."""

    def touches(self, arguments: BashInput, workspace: Workspace) -> list[Path]:  # noqa: ARG002 - the interface of every tool
        """The directory it starts in; what a command touches cannot be told before it runs."""
        return [workspace.root.resolve()]

    async def run(self, arguments: BashInput, workspace: Workspace) -> ToolResult:
        """The output, and how the command ended unless it went well.

        When the time is up or the call is cancelled, all processes of the command are ended first.
        """
        timeout = arguments.timeout
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ToolFailed(f"timeout is {timeout:g}, but must be over 0 and at most {LONGEST_TIMEOUT:g} seconds")
        output = CappedText(KEPT)
        with trio.move_on_after(timeout):
            status = await run_shell(
                arguments.command, workspace.root, _environment(os.environ), heard=output.add, grace=self.grace
            )
            return _result(output, f"[exit code {status}]" if status else None)
        return _result(output, f"[timed out after {timeout:g} s]")


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What a command may know: everything but the keys to the model and to the session."""
    return {
        name: value for name, value in inherited.items() if not name.startswith(SECRET_PREFIX) and name not in SECRETS
    }


def _result(output: CappedText, failure: str | None) -> ToolResult:
    text = output.finish().rstrip("\n")
    lines = [line for line in (text, failure) if line]
    return ToolResult(text="\n".join(lines), is_error=failure is not None)
