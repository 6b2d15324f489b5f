"""Composition: one root per way to start, and the only readers of the user's settings."""
