"""Recipes for the networks of diffusion pipelines."""
