"""The prompt cache: how a request is laid out, what of it is cached, and what that costs."""
