"""Experiments of the papers, again: one file an experiment, and what they share."""
