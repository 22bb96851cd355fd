"""FSTC: pseudo-labels by optimal transport, and shared cluster centres."""
