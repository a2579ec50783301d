"""A suite's own reader: somebody's function, which says what a picture shows."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np

from harness.core.errors import StageError
from harness.core.outcome import Outcome

Reader = Callable[[np.ndarray], object]


def reader_of(path: str) -> Reader | None:
    """Import the function that ``file.py:function`` or ``module:function`` names.

    Raises:
        StageError: It cannot be imported, or is no function.

    """
    if not path:
        return None
    place, _, name = path.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None  # noqa: S101  # a .py file has a loader
            assert spec.loader is not None  # noqa: S101  # idem
            module = importlib.util.module_from_spec(spec)
            import sys  # dataclasses look their module up

            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        reader: object = getattr(module, name)
    except Exception as error:  # somebody's own code may raise anything
        what = f"reader {path!r} cannot be imported"
        raise _failed(error, what) from error
    if not callable(reader):
        msg = f"reader {path!r} is no function but {reader!r}."
        raise StageError(msg, outcome=Outcome.RUN)
    return cast("Reader", reader)


def read_picture(reader: Reader, path: str, shown: str, picture: np.ndarray) -> str:
    """Return what a reader sees.

    Args:
        reader: The function.
        path: What the suite calls it.
        shown: What is called the picture.
        picture: uint8 ``[height, width, 3]``.

    Raises:
        StageError: It raised something; names reader and picture.

    """
    try:
        return str(reader(picture))
    except Exception as error:  # idem
        what = f"reader {path!r} cannot read {shown}"
        raise _failed(error, what) from error


def _failed(error: Exception, what: str) -> StageError:
    msg = f"{what}: {type(error).__name__}: {error}"
    return StageError(msg, outcome=Outcome.RUN, log=traceback.format_exc())
