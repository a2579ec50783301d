"""A run held against another: what changed, and whether it may ship."""
