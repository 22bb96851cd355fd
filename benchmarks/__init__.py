"""Benchmarks and attacks: see ``python -m benchmarks list``."""
