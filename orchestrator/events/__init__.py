"""Readers of a session: what its processes tell and record, as one stream of events."""
