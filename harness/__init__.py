"""Numerical parity of models on their way from PyTorch to ONNX to MNN.

The names of this package are its public interface; ``__init__.pyi`` lists them. Each is
imported when it is first used, so that ``import harness`` loads no framework.

>>> import numpy as np
>>> expected = np.array([1.0, 2.0, 4.0], np.float32)
>>> found = compare(expected=expected, actual=expected * np.float32(1.5))
>>> found.max_abs, found.worst_index
(2.0, (2,))
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # ``python -m harness`` is being found. Python puts the current folder first for it,
    # where somebody else's files may lie. The installed `parity` does not look there.
    del sys.path[0]

import lazy_loader

__version__ = "1.0.0"

# The stub is the one list: mypy reads it, and so does this line.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
