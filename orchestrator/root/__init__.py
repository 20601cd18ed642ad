"""Root process of a session, which supervises all agents: its entry point, and the session as the process runs it."""
