"""Word vectors: skip-gram training, files, nearest neighbors, and initialization of a model's embedding."""
