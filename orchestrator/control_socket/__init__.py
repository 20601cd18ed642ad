"""The socket on which the user, from a shell, asks the root of a session that runs."""
