"""Language modeling: plain text -> a model that continues a prompt, scored by perplexity."""
