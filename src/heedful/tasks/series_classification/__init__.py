"""Classification of series: sequences of vectors of any length, such as motions -> a label, scored by accuracy."""
