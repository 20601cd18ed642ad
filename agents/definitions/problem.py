"""What is wrong with a definition, where, and how much it matters."""

from pathlib import Path
from typing import Literal

import attrs

Severity = Literal["error", "warning", "note"]
"""error: the file gives no agent. warning: something that was meant has no effect. note: something was passed over."""


@attrs.frozen(kw_only=True)
class Problem:
    """One thing to know about a file."""

    path: Path
    line: int
    severity: Severity
    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.reason}"
