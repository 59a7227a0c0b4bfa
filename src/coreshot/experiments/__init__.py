"""Presets -> rows of results."""
