"""The order of the stages, the artifact store, and the worker processes."""
