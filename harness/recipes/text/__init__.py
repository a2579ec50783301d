"""Recipes of text encoders and of the models that are built on one."""
