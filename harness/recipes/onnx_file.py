"""The recipe of an ONNX file without a PyTorch model: the file is its own reference.

The signature is that of the file, and the source's path is the file. The type and name
of an input decide how it is drawn. Integers with two axes or more are token ids, unless
their name contains ``mask`` or ``type``. One number for each item is a timestep, or a
class if it looks up a row of a table. Other numbers are noise. Ids and classes are
within the table that they look up; the option ``vocabulary`` draws them below it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.core.case import DTYPES, Component, Source, TensorSpec, is_symbol
from harness.core.errors import SuiteError
from harness.core.onnx_header import read_header
from harness.core.onnx_ports import Port
from harness.recipes.checkpoint import option
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import numpy as np
    import torch

TIMESTEPS = 1000
VOCABULARY = 1000
"""Token ids are drawn below this if neither the file nor the suite gives a limit."""

_LEAST_TOKENS = 2
_LONGEST_NAME = 40
"""Most characters of an input's name in the symbol of an axis."""

_CACHE = "past_key_values"
"""Beginning of the names of a decoder's cached keys and values, ``[batch, heads, past,
width]``."""

_APART = 7
"""Difference of two items' timesteps, to detect a runtime that exchanges items."""


def signature(source: Source, options: Options) -> Signature:
    """Return the file's inputs and outputs; an open axis is a size of its name."""
    option(options, ("vocabulary",))
    header = read_header(source.path)
    shapes, named = _shapes(header.inputs)
    inputs = tuple(
        _input(port, shape, looks_up=port.name in header.rows)
        for port, shape in zip(header.inputs, shapes, strict=True)
    )
    outputs = tuple(
        TensorSpec(
            name=port.name,
            # No file tells how an output's own sizes follow from the inputs'.
            shape=tuple(
                size if isinstance(size, int) else named.get(size, 0)
                for size in port.shape or ()
            ),
        )
        for port in header.outputs
    )
    return inputs, outputs


def names_of_axes(source: Source) -> dict[str, str]:
    """Return each symbol of the inputs that the file itself calls by another name."""
    _, named = _shapes(read_header(source.path).inputs)
    return {symbol: said for said, symbol in named.items() if said != symbol}


def _shapes(
    ports: Sequence[Port],
) -> tuple[list[tuple[int | str, ...]], dict[str, str]]:
    """Return the inputs' shapes with symbols, and the symbol of each axis' name.

    An axis whose name can be no symbol gets one that is made from its input's name, and
    so does an axis without a name.
    """
    named = {
        size: size
        for port in ports
        for size in port.shape or ()
        if isinstance(size, str) and is_symbol(size)
    }
    used = set(named)
    shapes = []
    named |= _sums(ports, named)
    for port in ports:
        shape: list[int | str] = []
        for axis, size in enumerate(port.shape or ()):
            if isinstance(size, int) or size in named:
                shape.append(size if isinstance(size, int) else named[size])
                continue
            made = _symbol(port.name, axis, used)
            used.add(made)
            if re.search(r"\w", size):  # some files call every open axis "?"
                named[size] = made
            shape.append(made)
        shapes.append(tuple(shape))
    return shapes, named


def _sums(ports: Sequence[Port], named: Mapping[str, str]) -> dict[str, str]:
    """Return axes that are as long as two others together, each with the sum.

    Some files name such an axis by the sum, ``past_sequence_length + 1``. A decoder's
    mask covers the tokens in the cache and the new ones, whatever its axis is called.
    """
    found = {}
    for port in ports:
        for size in port.shape or ():
            parts = str(size).replace(" ", "").split("+")
            if len(parts) == 2 and all(p in named or p.isdecimal() for p in parts):  # noqa: PLR2004  # a sum
                one, two = sorted(parts, key=str.isdecimal)
                if not one.isdecimal():
                    found[str(size)] = f"{one}+{two}"
    of = {port.name: port.shape or () for port in ports}
    caches = [shape for name, shape in of.items() if name.startswith(_CACHE)]
    mask, ids = of.get("attention_mask", ()), of.get("input_ids", ())
    if caches and len(mask) == len(ids) == _LEAST_TOKENS:
        past, total, new = caches[0][-2], mask[-1], ids[-1]
        own = total not in {past, new} and total not in found
        if past in named and isinstance(total, str) and own:
            found[total] = f"{past}+{new}"
    return found


def _symbol(name: str, axis: int, used: Collection[str]) -> str:
    """Return a symbol for an axis of an input that is not in `used`."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST_NAME]
    plain = plain if is_symbol(plain) else f"axis_{plain}"
    tried = (f"{plain}_{axis}" + "_" * more for more in itertools.count())
    return next(one for one in tried if one not in used)


def _input(port: Port, shape: tuple[int | str, ...], *, looks_up: bool) -> TensorSpec:
    if port.shape is None or port.dtype not in DTYPES:
        msg = (
            f"input {port.name!r} is {port}: an input must have a known shape, and be "
            f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}."
        )
        raise SuiteError(msg)
    lone = len(shape) < _LEAST_TOKENS
    draw = "normal" if port.dtype.startswith("float") else ""
    if lone:  # no profile must draw a class beyond its table
        looks_up = looks_up and port.dtype != "bool"
        draw = "pipeline" if looks_up else "timestep"
    return TensorSpec(name=port.name, shape=shape, dtype=port.dtype, draw=draw)


def build(component: Component, attention: str = "") -> torch.nn.Module:
    """Raise an error, because there is no PyTorch model.

    Raises:
        SuiteError: Always.

    """
    del attention
    msg = f"{component.name} has no PyTorch model; its reference is {component.source}."
    raise SuiteError(msg)


def realistic(component: Component, shapes: Sizes, step: int, rng: Rng) -> Drawn:
    """Draw each input by its kind."""
    rows = read_header(component.source.path).rows
    said = dict(component.options).get("vocabulary")
    drawn = {}
    for spec in component.inputs:
        limits = [int(one) for one in (rows.get(spec.name), said) if one]
        below = min(limits, default=VOCABULARY)
        drawn[spec.name] = _draw(spec, spec.bind(shapes), step, below, rng)
    return drawn


def _draw(
    spec: TensorSpec, shape: tuple[int, ...], step: int, below: int, rng: Rng
) -> np.ndarray:
    import numpy as np

    if spec.draw == "timestep":
        number = (0, 1, TIMESTEPS // 2, TIMESTEPS - 1)[step % 4]
        items = np.arange(int(np.prod(shape))).reshape(shape)
        return np.asarray((number - _APART * items) % TIMESTEPS, dtype=spec.dtype)
    if spec.draw == "pipeline":
        labels = rng.integers(0, below) + np.arange(int(np.prod(shape)))
        return np.asarray(labels % below, dtype=spec.dtype).reshape(shape)
    if spec.draw == "normal":
        numbers = rng.standard_normal(shape)
        if spec.dtype == "float64":  # MNN reads float32 alone, and none must change
            numbers = numbers.astype(np.float32)
        return numbers.astype(spec.dtype)
    # Each row ends or changes at another place, because rows must differ.
    places = np.arange(shape[-1])[None, :]
    rows = np.arange(int(np.prod(shape[:-1])))[:, None]
    drawn: np.ndarray
    if "mask" in spec.name:
        drawn = places < np.maximum(1, shape[-1] - rows)
    elif "type" in spec.name:
        drawn = np.minimum(places > rows % shape[-1], below - 1)
    elif spec.dtype == "bool":
        drawn = rng.integers(0, 2, size=(rows.size, shape[-1]))
    else:
        drawn = rng.integers(0, below, size=(rows.size, shape[-1]))
    return drawn.reshape(shape).astype(spec.dtype)
