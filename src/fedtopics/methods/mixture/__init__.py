"""A mixture of topics by embeddings and words: expectation-maximisation by sums."""
