"""Span: questions with texts that contain the answers -> a model that extracts answers, scored by exact match and F1."""
