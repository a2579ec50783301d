"""The inputs and outputs of an ``.mnn`` file, as MNN itself tells them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import MNN
import MNN.nn

from harness.core.onnx_ports import Port


def file_ports(path: Path) -> tuple[list[Port], list[str]]:
    """Load the file at `path` by either of MNN's APIs.

    A session refuses a file whose shapes depend on values, and a module loads it.

    Returns:
        The inputs, sorted by name, and the sorted names of the outputs. The dtype of an
        input is float32 or int32, which are all that MNN takes. A size that may be open
        is an empty text.

    Raises:
        Exception: MNN loads no such file. It raises no class of its own.

    """
    net = MNN.Interpreter(str(path))
    try:
        session = net.createSession({"backend": "CPU", "numThread": 1})
    except Exception:
        with suppress(SystemError):  # its words are in the log alone
            return _of_module(path)
        raise
    inputs = net.getSessionInputAll(session)
    taken = [
        _port(name, tensor.getShape(), tensor.getDataType() == MNN.Halide_Type_Int)
        for name, tensor in sorted(inputs.items())
    ]
    return taken, sorted(net.getSessionOutputAll(session))


def _of_module(path: Path) -> tuple[list[Port], list[str]]:
    told = MNN.nn.load_module_from_file(str(path), [], []).get_info()
    floating = (MNN.expr.float, MNN.expr.double)
    taken = [
        _port(name, variable.shape, variable.dtype not in floating)
        for name, variable in zip(told["inputNames"], told["inputs"], strict=True)
    ]
    return sorted(taken, key=lambda port: port.name), sorted(told["outputNames"])


def _port(name: str, sizes: tuple[int, ...] | list[int], whole: bool) -> Port:  # noqa: FBT001
    # MNN writes an open first axis as 1 and any other as -1.
    shape = tuple(size if size > 1 else "" for size in sizes)
    return Port(name=name, dtype="int32" if whole else "float32", shape=shape)
