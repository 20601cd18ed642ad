"""Scenarios: scripted teams with what goes wrong, what the human does, and what must come of it."""
