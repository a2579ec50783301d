"""A method of a module, as a module: an autoencoder's ``decode``, for example."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Method(torch.nn.Module):
    """A module whose ``forward`` is a method of another one.

    Args:
        network: The other module.
        method: Name of its method.

    """

    def __init__(self, network: torch.nn.Module, method: str) -> None:
        super().__init__()
        self.network = network
        self.method = method
        self.training = network.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        return getattr(self.network, self.method)(*args, **kwargs)


def as_module(value: object) -> torch.nn.Module | None:
    """Return a module, or a module's method as one; None for anything else."""
    owner = getattr(value, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return Method(owner, getattr(value, "__name__", ""))
    return value if isinstance(value, torch.nn.Module) else None


def called_by(module: torch.nn.Module) -> tuple[torch.nn.Module, str]:
    """Return the module that has the weights, and the method that is called."""
    if isinstance(module, Method):
        return module.network, module.method
    return module, "forward"


def signature_of(module: torch.nn.Module) -> inspect.Signature:
    """Return the parameters with which a module is called."""
    network, method = called_by(module)
    return inspect.signature(getattr(network, method))
