"""Image classification: labeled images -> a model that predicts the label of an image, scored by accuracy."""
