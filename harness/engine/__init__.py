"""The order of the stages, the store and the processes that they run in."""
