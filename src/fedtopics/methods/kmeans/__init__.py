"""Federated k-means: exact, or with a single exchange (k-FED)."""
