"""Similarity of texts: by wording, by shared words, by relevance to a question, by embeddings."""
