"""Skip-thought vectors: sentences of a running text -> an encoder of sentences, by predicting the sentences around each."""
