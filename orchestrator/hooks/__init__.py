"""Which hooks hold for an agent: those of the user's files, and those of a project that its user has approved."""
