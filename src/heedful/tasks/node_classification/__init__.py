"""Node classification: graphs with a label for each node -> a model that attends along edges, scored by accuracy and F1."""
