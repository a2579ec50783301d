"""Runtimes elsewhere: one agent, and the connection to it."""
