"""Analyses of a trained model, one per file: a typed result with its text, figures and section of the report."""
