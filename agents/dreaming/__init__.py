"""Layer 6: a helper consolidates the memory across sessions, in the background of one that has finished its work."""
