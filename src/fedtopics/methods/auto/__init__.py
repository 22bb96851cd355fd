"""The method that suits the documents, by a rule that all participants apply to the same sums."""
