"""Root process of a session: its program, and the session that it runs."""
