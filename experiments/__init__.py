"""The papers' experiments, a folder a paper; not part of the package. See README.md."""
