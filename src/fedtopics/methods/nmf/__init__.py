"""Federated non-negative matrix factorisation: topics of weighted words, by sums alone."""
