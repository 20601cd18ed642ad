"""The calls of a run by their ids: events name a call, the transcript has its arguments."""

from collections.abc import Mapping
from typing import Any

import attrs

from coterie.orchestrator.cli.printable import one_line
from coterie.orchestrator.cli.wording import SHOWN, call_text
from coterie.orchestrator.events.observed import MessageRecorded

MAIN_ARGUMENTS = ("file_path", "notebook_path", "command", "pattern", "bash_id")
"""The argument that says best what a call is about; of other tools it is the first."""


@attrs.define(eq=False)
class Calls:
    """Remembers the arguments of the calls of the last message."""

    _arguments: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def note(self, message: MessageRecorded) -> None:
        """Take the calls of a message of the model; all earlier ones have ended."""
        self._arguments = {block["id"]: block["input"] for block in message.content if block.get("type") == "tool_use"}

    def text(self, call: str, name: str) -> str:
        """The call with its arguments."""
        return call_text(name, self._arguments.get(call, {}))

    def brief(self, call: str, name: str) -> str:
        """The call with its main argument, on one line."""
        arguments = self._arguments.get(call, {})
        main = next((key for key in MAIN_ARGUMENTS if key in arguments), next(iter(arguments), None))
        about = one_line(str(arguments[main]), SHOWN) if main is not None else ""
        return f"{one_line(name, SHOWN)} {about}".strip()
