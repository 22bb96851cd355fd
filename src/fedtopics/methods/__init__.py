"""Federated methods: one folder per paper, and code that several of them share."""
