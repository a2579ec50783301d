"""Foreign files: what decides their entries in the store."""
