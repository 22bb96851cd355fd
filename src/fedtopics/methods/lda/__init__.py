"""Federated latent Dirichlet allocation: expected counts, summed."""
