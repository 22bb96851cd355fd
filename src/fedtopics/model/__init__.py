"""The topic model: its folder, its card, its exports, and how good its topics are."""
