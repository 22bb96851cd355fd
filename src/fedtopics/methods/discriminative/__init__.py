"""Discriminative clustering, exact from sums."""
