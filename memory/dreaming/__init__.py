"""Dreams: memories consolidated across sessions, on a copy, as a change that can be looked at, approved and undone."""
