"""The Messages API: what a call is, and how it is answered."""
