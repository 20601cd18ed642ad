"""A session that has ended, written down as a scenario that plays it again without a model."""
