"""Commands of the user's that run when something happens to an agent, and may object to it."""
