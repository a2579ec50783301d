"""The code of worker processes: PyTorch's side, and one folder for each runtime."""
