"""The MCP servers of a session: which there are, who let them start, and the one process that holds them."""
