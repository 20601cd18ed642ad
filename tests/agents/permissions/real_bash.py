"""Commands that a real bash runs for a command line."""

import os
import subprocess
from pathlib import Path

NOTE = r"""() { printf '%s\0' "$@" > "$COTERIE_NOTES/$BASHPID"
}"""


def ran_by_bash(text: str, directory: Path) -> list[list[str]]:
    """Return the words of each command that `bash -c` runs, in any order; it creates files only below *directory*."""
    notes, work = directory / "notes", directory / "work"
    notes.mkdir(parents=True)
    work.mkdir()
    environment = {
        "PATH": "/nonexistent",
        "HOME": str(work),
        "LC_ALL": "C.UTF-8",
        "COTERIE_NOTES": str(notes),
        "BASH_FUNC_command_not_found_handle%%": NOTE,
    }
    subprocess.run(
        ["/bin/bash", "-c", text],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    return [[os.fsdecode(word) for word in note.read_bytes().split(b"\0")[:-1]] for note in notes.iterdir()]
