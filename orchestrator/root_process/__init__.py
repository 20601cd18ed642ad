"""A session's own process, started by whoever wants to see it at work, and left alone by those who do not."""
