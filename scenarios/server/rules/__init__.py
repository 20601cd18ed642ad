"""What the API refuses, and how thinking blocks are bound to their prefix."""
