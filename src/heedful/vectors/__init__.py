"""Word vectors that are learnt apart from any model: training, files, neighbours, and their place in a model's embedding."""
