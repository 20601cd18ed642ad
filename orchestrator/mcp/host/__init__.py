"""The process that holds a session's MCP servers: the only one that imports the package which speaks with them."""
