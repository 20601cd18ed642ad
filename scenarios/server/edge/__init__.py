"""HTTP on loopback: connections in, whole requests out, answers back; knows nothing of the API."""
