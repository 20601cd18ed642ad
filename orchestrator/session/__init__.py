"""Root process of a session and the files by which it is found."""
