"""What is wrong with a store of memories, found by rules: no model is asked, and nothing is changed."""
