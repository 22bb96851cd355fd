"""A small file of each format, and the fields that are saved: what later versions must read."""
