"""Studies of a trained model: analyses that need a model, its tokenizers and some text, but no run folder."""
