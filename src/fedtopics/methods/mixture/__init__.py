"""A mixture model of embeddings and words: expectation-maximisation with sums."""
