"""What the model says: scripts, which reply a request gets, and what goes wrong on the way."""
