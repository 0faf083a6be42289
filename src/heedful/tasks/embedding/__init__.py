"""Embedding: pairs of similar texts -> a model that encodes a text as a vector, scored by retrieval."""
