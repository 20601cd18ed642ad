"""The hooks of a definition, in the shape that files of settings have."""

import re

from coterie.agents.definitions.field_reader import FieldReader
from coterie.agents.hooks.hook import Hook
from coterie.agents.hooks.reading import HookReader, Place

FIELD = "hooks"


def read_hook_field(reader: FieldReader, text: str) -> tuple[Hook, ...]:
    """What the field says; what is wrong with it is told by *reader*, with its line in *text*."""
    value = reader.value(FIELD)
    if value is None:
        return ()
    hooks = HookReader(str(reader.path))
    found = hooks.read(value)
    for flaw in hooks.flaws:
        reader.tell("warning", _line(reader, text, flaw.place), flaw.reason)
    for event in hooks.elsewhere:
        reader.tell("note", _line(reader, text, (event,)), f"{event} does not happen here, so its hooks do not run")
    return found


def _line(reader: FieldReader, text: str, place: Place) -> int:
    """Where the keys that lead to *place* stand, one below the other; of several alike, the first."""
    lines = text.splitlines()
    line = reader.front.lines.get(reader.spelling.get(FIELD, FIELD), reader.front.line or 1)
    for key in (step for step in place if isinstance(step, str)):
        wanted = re.compile(rf"""\s*(?:-\s+)?["']?{re.escape(key)}["']?\s*:""")
        line = next((at for at in range(line + 1, len(lines) + 1) if wanted.match(lines[at - 1])), line)
    return line
