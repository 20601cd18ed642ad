"""The exit codes of `coterie`, as published in the README."""

import enum


class ExitCode(enum.IntEnum):
    """What a shell learns from how a command ended."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    BUDGET_SPENT = 3
    APPROVAL_REFUSED = 4
    MODEL_UNREACHABLE = 5
    INTERRUPTED = 130
    TERMINATED = 143
