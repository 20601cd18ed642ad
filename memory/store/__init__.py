"""A store of memories: Markdown files that several agents write at once, an index, and a history of every change."""
