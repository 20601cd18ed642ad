"""A session as a board that moves: who is at work, what they say to each other, and what waits for an answer."""
