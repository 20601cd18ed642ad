"""Pages of the web for agents: from hosts that the user has listed, as text."""
