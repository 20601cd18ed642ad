"""Teams that a file describes: who is in one from the beginning, and what there is to do."""
