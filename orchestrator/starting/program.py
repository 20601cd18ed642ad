"""A module of ours as a new interpreter, held as a `Child`."""

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from coterie.orchestrator.starting.child import Child


def start_program(
    module: str,
    arguments: Sequence[str],
    *,
    passed: Sequence[int],
    environment: Mapping[str, str] | None,
    stderr: int | None = None,
) -> Child:
    """Run `python -P -m MODULE` in a session of its own, with the descriptors *passed* under the same numbers.

    Without *environment* and *stderr* it has ours. Raises `OSError`, or `ValueError` for an environment
    that cannot be.
    """
    # In a thread of trio's it would die with that thread, which lives for ten idle seconds.
    assert threading.current_thread() is threading.main_thread(), "a process dies with the thread that started it"
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=environment,
        pass_fds=passed,
        start_new_session=True,
    )
    try:
        child = Child.of(process.pid)
    except OSError:
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # so that `subprocess` takes it for reaped, and leaves that to the child's owner
    return child
