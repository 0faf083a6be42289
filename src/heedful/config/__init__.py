"""Configs: the base class, TOML files and overrides, the origin of every value, error messages, JSON Schema."""
