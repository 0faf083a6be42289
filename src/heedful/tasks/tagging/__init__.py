"""Tagging: sentences with a label for each word -> a model that labels words, scored by accuracy and by the F1 of spans."""
