"""The folder of recorded calls: what a module was called with, and what came out.

    captured.json        `Captured`: the form of a call, its tensors and their sizes
    calls.safetensors    tensors: ``CALL/NUMBER``, and of outputs ``CALL/out/NUMBER``
    weights.safetensors  weights of a module, if its name alone does not make them

All of it is data. The suite says which module it is for, and nothing here names code
that runs.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from harness.core.case import DTYPES, TensorSpec
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, read_json
from harness.recipes.nested import Tree, check_tree

if TYPE_CHECKING:
    import torch

FILE: Final = "captured.json"
CALLS: Final = "calls.safetensors"
WEIGHTS: Final = "weights.safetensors"
_SIZE: Final = re.compile(
    r"([1-9]\d{0,5}\*)?[A-Za-z_]\w{0,63}(/[1-9]\d{0,5})?(\+([A-Za-z_]\w{0,63}|\d{1,6}))?",
    re.ASCII,
)
_MOST_BYTES: Final = 16 << 20
_MOST_NUMBERS: Final = 1 << 32
"""Largest number of numbers in a tensor of a call."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Tensor(msgspec.Struct, frozen=True):
    """One tensor of every call.

    Attributes:
        name: Name, by its path in the arguments or in the result.
        shape: Size of each axis, as of `TensorSpec`.
        dtype: The dtype in which it is tested.

    """

    name: str
    shape: list[_Count | str]
    dtype: str

    def spec(self, draw: str = "") -> TensorSpec:
        """Return it as an input or an output of a component."""
        return TensorSpec(
            name=self.name, shape=tuple(self.shape), dtype=self.dtype, draw=draw
        )


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded calls of one module.

    Attributes:
        format: Number of the form of this file.
        module: The module's class, for a reader.
        weights: Digest of the names and shapes of the module's weights.
        parameters: Number of the module's weights.
        arguments: The positional arguments, and the named ones, of every call.
        inputs: The tensors in the arguments.
        outputs: The tensors in the result.
        calls: The size of each symbol, in each call.

    """

    format: int
    module: str
    weights: str
    parameters: _Count
    arguments: Tree
    inputs: list[Tensor]
    outputs: list[Tensor]
    calls: list[dict[str, _Count]]

    def calls_of(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the numbers of the calls that have these sizes."""
        return [at for at, own in enumerate(self.calls) if own == dict(sizes)]

    @property
    def opened(self) -> list[str]:
        """The symbols that an export may leave open.

        None may, where a size of an output does not follow from those of the inputs.
        """
        ours = [s for one in self.inputs for s in one.spec().symbols]
        theirs = [s for one in self.outputs for s in one.spec().symbols]
        return list(dict.fromkeys(ours)) if {*theirs} <= {*ours} else []

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes of the calls, each once, in the order of the calls."""
        return [own for at, own in enumerate(self.calls) if own not in self.calls[:at]]


def read_captured(folder: Path) -> Captured:
    """Return what a folder of recorded calls says.

    Raises:
        SuiteError: There is none, or it is damaged.

    """
    path = folder / FILE
    if not path.is_file():
        msg = (
            f"{folder} has no recorded calls: there is no {FILE}. "
            "`harness.capture(...)` and `calls.save(FOLDER)` write them."
        )
        raise SuiteError(msg)
    about = path.stat()
    return _read(path, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=64)
def _read(path: Path, _changed: int, _size: int) -> Captured:
    try:
        found = read_json(path, Captured, _MOST_BYTES)
        _check(found)
    except (OSError, DamagedError) as error:
        msg = f"{path} cannot be read ({error}); record the calls again."
        raise SuiteError(msg) from None
    return found


def _check(found: Captured) -> None:
    if found.format != 1:
        msg = f"its form is {found.format}, and this harness reads 1"
        raise DamagedError(msg)
    check_tree(found.arguments, len(found.inputs))
    if not (found.inputs and found.outputs and found.calls):
        msg = "it has no inputs, no outputs or no calls"
        raise DamagedError(msg)
    for tensor in (*found.inputs, *found.outputs):
        if tensor.dtype not in DTYPES:
            msg = f"{tensor.name[:80]!r} has the dtype {tensor.dtype[:20]!r}"
            raise DamagedError(msg)
        for size in tensor.shape:
            if isinstance(size, str) and not _SIZE.fullmatch(size):
                msg = f"{tensor.name[:80]!r} has the size {size[:20]!r}"
                raise DamagedError(msg)
    every = (*found.inputs, *found.outputs)
    symbols = {symbol for tensor in every for symbol in tensor.spec().symbols}
    if any(symbols != set(own) for own in found.calls):
        msg = "a call lacks the size of an open axis"
        raise DamagedError(msg)
    for tensor in every:
        spec = tensor.spec()
        if any(math.prod(spec.bind(own)) > _MOST_NUMBERS for own in found.calls):
            msg = f"{tensor.name[:80]!r} has more than {_MOST_NUMBERS:,} numbers"
            raise DamagedError(msg)


def read_tensors(folder: Path, names: list[str]) -> dict[str, torch.Tensor]:
    """Return tensors of recorded calls by their names in the file.

    Raises:
        SuiteError: The file is missing or damaged, or lacks one.

    """
    from safetensors import SafetensorError, safe_open

    path = folder / CALLS
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        msg = f"{path} cannot be read ({error}); record the calls again."
        raise SuiteError(msg) from None


def write_captured(
    folder: Path, captured: Captured, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write the folder of a module's recorded calls."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    save_file({name: _own(one) for name, one in tensors.items()}, folder / CALLS)
    text = msgspec.json.format(msgspec.json.encode(captured), indent=1)
    (folder / FILE).write_bytes(text + b"\n")


def _own(tensor: torch.Tensor) -> Any:
    return tensor.detach().to("cpu").contiguous().clone()
