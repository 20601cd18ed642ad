"""How much recall may look at and show."""

import attrs


@attrs.frozen(kw_only=True)
class RecallLimits:
    """The numbers of `[memory.recall]`."""

    model: str = "sonnet"
    """Who chooses, by id or alias."""
    most: int = 5
    """Memories that one message brings."""
    scan: int = 200
    """Files that the model chooses from; of more, the local ranker takes the best."""
    file_lines: int = 200
    file_bytes: int = 4_096
    """Of one memory; what is longer is cut."""
    session_bytes: int = 61_440
    """Of all memories that one agent is shown; after that there are no more."""
    stale_days: int = 2
    """From which on a memory is shown with a warning."""
