"""Captioning: images with captions -> a model that describes an image, scored by exact match, BLEU and chrF."""
