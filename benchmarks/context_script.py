"""Model side of a session of days: its turns, and the replies of its helpers for notes and summaries."""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.long_session import LongSession, scripted
from coterie.memory.notes.template import default_template

PARTS = (
    "Request and intent",
    "Concepts",
    "Files and code",
    "Errors and fixes",
    "Problem solving",
    "All messages of the user",
    "Pending tasks",
    "Current work",
    "Next step",
)
FILES = 10
"""Files that a part of the summary names."""
THINKING = 0.1
"""Seconds that the model takes for a turn whose CPU time is compared."""
STEP = "- step {{turn}}: looked at how others have done this, compared what was found, and went on with the task"


def days_script(session: LongSession, notes: Path, compared: Sequence[slice] = ()) -> str:
    """Return the script for the embedded server; *notes* is the file that the helper edits.

    The server answers a short prompt in less than a tenth of the time of a long one, which no model does, and a program
    that has waited may find its caches cold. So the server takes its time with all turns that are *compared*.
    """
    turns = [scripted(reply) for reply in session.replies]
    for turn in chain.from_iterable(turns[which] for which in compared):
        turn["delay"] = THINKING
    first = _update(notes, _hint("Worklog"), f"{_hint('Worklog')}\n\n{STEP}")
    later = _update(notes, "{{match.1}}", f"{{{{match.1}}}}\n{STEP}")
    replies = [
        *turns,
        {"purpose": "notes", "times": "always", **first},
        {"purpose": "notes", "when": {"last_user_text": r"/.*(- step \d+: [^\n]+)/s"}, **later},
        {"purpose": "compaction", "times": "always", "text": _summary(session)},
    ]
    # JSON is YAML.
    return json.dumps({"default": replies})


def _update(notes: Path, old: str, new: str) -> dict[str, Any]:
    """Return the reply of a helper that extends the log, and puts new entries first in two other sections."""
    state = "After step {{turn}}: the task of the user is under way, nothing is broken, and the next file waits."
    found = "- seen in step {{turn}}: the files that the calls before it name; none of them has been changed"
    edits = [(old, new), *((hint, f"{hint}\n{text}") for hint, text in _news(state, found))]
    return {
        "thinking": "What has happened since the notes were written?",
        "tools": [
            {"Edit": {"file_path": str(notes), "old_string": old_string, "new_string": new_string}}
            for old_string, new_string in edits
        ],
    }


def _news(state: str, found: str) -> list[tuple[str, str]]:
    return [(_hint("Current State"), state), (_hint("Files and Functions"), found)]


def _hint(heading: str) -> str:
    """Return the line below a heading, which occurs in the notes exactly once and stays there."""
    [section] = [section for section in default_template().sections if section.heading == heading]
    return section.hint[0]


def _summary(session: LongSession) -> str:
    """Return nine parts as long as real summaries, about files that the session reads."""
    calls = (call for reply in session.replies for call in reply.calls if call.name == "Read")
    paths = list(dict.fromkeys(str(call.arguments["file_path"]) for call in calls))
    lines = [f"- {path}: looked at to see how others have done this; it was not changed" for path in paths]
    parts = [
        f"{number + 1}. {part}:\n" + "\n".join(lines[number * FILES : (number + 1) * FILES])
        for number, part in enumerate(PARTS)
    ]
    return "<analysis>\nI went through all of it.\n</analysis>\n<summary>\n" + "\n\n".join(parts) + "\n</summary>"
