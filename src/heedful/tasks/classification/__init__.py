"""Classification: labeled texts -> a model that predicts the label of a text, scored by accuracy."""
