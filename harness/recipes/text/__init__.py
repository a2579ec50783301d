"""Recipes for text encoders, and for models that are built on one."""
