"""The process tree of a session: the root owns every agent's process, from its start until it is reaped."""
