"""F-LDA: topics of each client's own LDA, merged by similarity."""
