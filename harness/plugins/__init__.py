"""Capabilities beside the core; each declares a `harness.core.plugins.Plugin`."""
