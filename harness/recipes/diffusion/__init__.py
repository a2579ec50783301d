"""Recipes of the networks of diffusion pipelines."""
