"""Engines of other projects, each in an environment of its own."""
