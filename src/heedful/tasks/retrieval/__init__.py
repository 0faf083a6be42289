"""Retrieval: a question or a dialogue -> the best stored answers, by a dual encoder and exact search of vectors."""
