"""Finished runs compared: what changed, and the baselines that are kept."""
