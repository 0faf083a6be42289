"""Masked language modeling: plain text -> an encoder that predicts hidden tokens from both sides, for fine-tuning."""
