"""A toy task: the reversed label of a text, "sey" for one that is labeled "yes"."""
