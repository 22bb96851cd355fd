"""Sums of replies that nobody sees one by one."""
