"""The Python API: a session as a program opens it. `coterie` offers what is public here."""
