"""What runs in worker processes; the keys of the store have this code."""
