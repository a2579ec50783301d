"""What a worker process does: PyTorch's side, and one folder for each runtime."""
