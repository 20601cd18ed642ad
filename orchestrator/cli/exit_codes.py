"""The exit codes of `coterie`, as published in the README, and the error that carries the one for bad input."""

import enum

import click


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


class Refused(click.ClickException):
    """What the user gave cannot be used: one line on standard error, and the exit code for it."""

    exit_code = ExitCode.USAGE
