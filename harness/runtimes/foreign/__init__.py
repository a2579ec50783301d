"""Foreign models, lined up with PyTorch's values or with themselves."""
