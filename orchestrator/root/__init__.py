"""Root process of a session: its program, the session it holds, and jobs without a session."""
