"""How a trained model finds a document's topics or its cluster; LDA of one's own documents."""
