"""MCP servers as an agent knows them: what they are called, how they are configured, and their tools.

The servers themselves, and the package that speaks with them, are in another process; see `coterie.orchestrator.mcp`.
"""
