"""Recall: which memories may be of use for what was just said, found by a model or by a local ranker."""
