"""PyTorch: the reference run, the export and the program behind both."""
