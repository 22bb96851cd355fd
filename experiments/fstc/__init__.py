"""FSTC: table 2, figures 2 to 4, and what each part of it does."""
