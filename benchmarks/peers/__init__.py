"""Peers: models of other libraries with the same size, trained by the same code."""
