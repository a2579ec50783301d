"""Small networks whose calls and results are nested in many ways."""

import dataclasses
import types

import torch


@dataclasses.dataclass
class Batch:
    """A call's argument: a tensor, and plain data beside it."""

    values: torch.Tensor
    scale: float = 1.0
    note: str = ""


class Nested(torch.nn.Module):
    """It takes a data class, a list of tensors and None, and returns a dict."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, batch, *, more=None, extra=None):
        hidden = torch.relu(self.first(batch.values)) * batch.scale
        for one in more or ():
            hidden = hidden + one
        return {"sample": self.second(hidden), "states": (hidden, extra)}


class Rotary(torch.nn.Module):
    """It turns pairs of numbers by complex products."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)

    def turn(self, hidden):
        pairs = torch.view_as_complex(hidden.unflatten(-1, (-1, 2)).contiguous())
        turned = pairs * torch.polar(torch.ones(8), torch.arange(8.0))
        return torch.view_as_real(turned).flatten(-2)

    def forward(self, x):
        return self.turn(self.linear(x))


def _turned(hidden, sign):
    one, two = hidden.unflatten(-1, (-1, 2)).unbind(-1)
    angles = torch.arange(8.0)
    real = one * angles.cos() - sign * two * angles.sin()
    imaginary = one * angles.sin() + two * angles.cos()
    return torch.stack([real, imaginary], -1).flatten(-2)


def real_rotary(network):
    """The patch that is right."""
    network.turn = types.MethodType(lambda _, hidden: _turned(hidden, 1), network)


def wrong_sign(network):
    """A patch with a wrong sign."""
    network.turn = types.MethodType(lambda _, hidden: _turned(hidden, -1), network)


def nothing(network):
    """A patch that changes nothing."""


def raises(network):
    """A patch that fails."""
    raise KeyError(network)


def other_weights(network):
    """A patch that changes what was learnt."""
    network.linear.weight.data.mul_(2.0)


def for_all(network):
    """A patch of the class, which the reference has too."""
    type(network).turn = lambda _, hidden: hidden * 2.0


class InPlace(torch.nn.Module):
    def forward(self, x):
        return x.add_(1.0)


class Silent(torch.nn.Module):
    def forward(self, x):
        return x.shape[0]


class Random(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1.0
        return x + self.count


class Locked(torch.nn.Module):
    """It holds something that no other process can have."""

    def __init__(self):
        super().__init__()
        import threading

        self.lock = threading.Lock()

    def forward(self, x):
        return x * 2.0


def hooked():
    """Return a module whose hook changes its outputs."""
    linear = torch.nn.Linear(4, 4).eval()
    linear.register_forward_hook(lambda _module, _args, made: made + 1.0)
    return linear
