"""Layer 3: session notes, a file that says what an agent has done so far, so that its context may forget it."""

from coterie.memory.notes.document import Notes
from coterie.memory.notes.limits import NotesLimits, tokens_of, trim_notes
from coterie.memory.notes.schedule import Delay, Need, Schedule
from coterie.memory.notes.template import Template, default_template, fill_slots

__all__ = [
    "Delay",
    "Need",
    "Notes",
    "NotesLimits",
    "Schedule",
    "Template",
    "default_template",
    "fill_slots",
    "tokens_of",
    "trim_notes",
]
