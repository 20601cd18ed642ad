"""How an agent asks the model: one streaming call through the real SDK, its retries, and its typed reply."""
