"""Federated non-negative matrix factorisation: topics of weighted words, only by sums."""
