"""Federated methods: a folder a paper, and beside them what several share."""
