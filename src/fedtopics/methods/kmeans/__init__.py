"""Federated k-means, exact or in one exchange (k-FED)."""
