"""Federated non-negative matrix factorisation: topics of weighted words, from only sums."""
