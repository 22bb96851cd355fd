"""Documents, words and embeddings."""
