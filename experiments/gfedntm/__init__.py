"""gFedNTM: section 4.1 with figure 3, section 4.2 with figure 4."""
