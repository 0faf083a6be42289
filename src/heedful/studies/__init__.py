"""Studies of a trained model with its words: what needs a model, its tokenizers and some text, and no run folder."""
