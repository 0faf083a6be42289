"""Peers: other people's models of the same size, trained by the same few lines."""
