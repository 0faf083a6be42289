"""Node classification: graphs with a label for each node -> a model that attends along the edges, scored by accuracy and macro F1."""
