"""From a recipe to a run folder and back: the config of a run, building, training, loading, pruning, recipes."""
