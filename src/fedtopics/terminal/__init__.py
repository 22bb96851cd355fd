"""What people see in a terminal: sentences of events, tables, progress."""
