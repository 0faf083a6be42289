"""Word vectors that are learned apart from any model: training, files, neighbors, and their place in a model's embedding."""
