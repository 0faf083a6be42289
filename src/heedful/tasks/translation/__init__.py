"""Translation: sentence pairs -> a model that translates, scored by BLEU and other metrics."""
