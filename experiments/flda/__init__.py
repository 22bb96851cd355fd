"""F-LDA: its table, and its threshold beside a person's labels."""
