"""From arrays to numbers. Nothing here knows a tolerance."""
