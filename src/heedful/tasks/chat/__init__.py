"""Chat: the reply to a dialogue, generated from its last turns."""
