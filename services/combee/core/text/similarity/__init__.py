"""How alike texts are: word by word, by the words they share, for a question, by their embeddings."""
