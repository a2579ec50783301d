"""Drawing, in the process of PyTorch: networks, schedulers, pictures."""
