"""Root for the tests of the doctor, with one process that survives it, in a separate process: `SESSION`."""

import os
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

from coterie.clock import Clock
from coterie.orchestrator.session.root_lock import open_root_record
from coterie.process_identity import AGENT_VARIABLE, SESSION_VARIABLE
from coterie.session_directory import SessionDirectory


def run(name: str) -> None:
    """Start the process, print its pid, and wait for SIGTERM."""
    signal.signal(signal.SIGTERM, _leave)
    environment = {**os.environ, SESSION_VARIABLE: name, AGENT_VARIABLE: "scout#1"}
    with open_root_record(SessionDirectory.find(name), Clock()):
        process = subprocess.Popen(["/bin/sleep", "1000"], env=environment, start_new_session=True)
        try:
            print(process.pid, flush=True)  # noqa: T201 - the test waits for it
            signal.pause()
        finally:
            process.kill()
            process.wait()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    run(sys.argv[1])
