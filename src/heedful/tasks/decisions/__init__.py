"""Decisions: recorded episodes -> a model that takes the action that leads to a desired return (Decision Transformer)."""
