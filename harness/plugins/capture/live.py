"""How a live module reaches a worker process: as a pickle in this user's own store.

PyTorch writes the tensors beside the pickle, so they are neither copied in memory nor
sent through a pipe, and a worker maps them. The kind of the entry is never shared, and
is read only where nobody else can write.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import xxhash

from harness.core.case import LIVE
from harness.core.errors import ParityError, SpecError, first_line
from harness.core.kinds import MODULE
from harness.core.permissions import is_private
from harness.core.store_root import local_root
from harness.engine.store import Store
from harness.engine.store_folder import StoreFolder

FILE: Final = "module.pt"
_HOOKED: Final = "_output_capturing_hooks_installed"
"""The mark of transformers on a network that has the hooks for its hidden states."""

_HOOKS: Final = re.compile(r"_(forward|backward|state_dict|load_state_dict)\w*hooks\w*")
_HOW: Final = (
    "Write a function in a module of yours that makes it, and give its name: "
    'harness.check("my_project.nets:make", inputs).'
)


def keep(value: Any, types: Mapping[str, type] | None = None) -> str:
    """Keep a module or a patch in the store; return its name, `LIVE` and a digest.

    Args:
        value: A module, or a function.
        types: Data classes that its calls need, by their names.

    Raises:
        SpecError: It cannot travel to another process, or others can write there.

    """
    root = local_root()
    folder = StoreFolder(root)
    with folder.sentences():
        folder.open()
    if not is_private(root):
        msg = (
            f"Others can write to the store at {root}, so no live module is kept "
            "there; set PARITY_STORE to a folder that only you can write."
        )
        raise SpecError(msg)
    # On the store's own disk, where a file can be renamed from.
    with TemporaryDirectory(prefix="parity-module-", dir=root) as scratch:
        path = Path(scratch) / FILE
        _write(value, dict(types or {}), path)

        def build(folder: Path) -> Mapping[str, object]:
            path.rename(folder / FILE)
            return {}

        entry = Store(root=root).make(MODULE, {"contents": _digest(path)}, build)
    return f"{LIVE}{entry.key_digest}"


def _write(value: Any, types: dict[str, type], path: Path) -> None:
    import cloudpickle  # noqa: TID251  # our own store
    import torch

    try:
        with without_hooks(value), _by_value(value, types):
            torch.save(
                {"value": value, "types": types}, path, pickle_module=cloudpickle
            )
    except ParityError:
        raise
    except Exception as error:  # noqa: BLE001  # a class of anybody's
        where = next(_unpicklable(value), "")
        what = f"its {where}" if where else "it"
        msg = (
            f"{type(value).__name__} cannot travel to another process: {what} cannot "
            f"be written ({type(error).__name__}: {first_line(error)}). {_HOW}"
        )
        raise SpecError(msg) from None


def _digest(path: Path) -> str:
    """Return a digest of a file of PyTorch, which is equal in each process.

    cloudpickle gives each class of a script a random number, which tells nothing.
    """
    from cloudpickle import cloudpickle  # noqa: TID251  # our own store

    found = xxhash.xxh3_128()
    ids = getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}).values()
    with zipfile.ZipFile(path) as opened:
        for name in sorted(opened.namelist()):
            inner = name.partition("/")[2]
            if inner == "data.pkl":
                pickled = opened.read(name)
                for one in ids:
                    pickled = pickled.replace(str(one).encode(), b"")
                found.update(pickled)
            elif inner.startswith("data/"):
                found.update(inner.encode())
                with opened.open(name) as part:
                    while chunk := part.read(1 << 20):
                        found.update(chunk)
    return found.hexdigest()


@contextmanager
def without_hooks(value: Any) -> Iterator[None]:
    """Take hooks away meanwhile: what they observe is not what the module computes.

    A network of transformers that is called meanwhile sets its own hooks anew: with
    them it collects hidden states that it returns.
    """
    import torch

    parts = list(value.modules()) if isinstance(value, torch.nn.Module) else []
    taken = [
        (held, dict(held))
        for part in parts
        for name, held in vars(part).items()
        if _HOOKS.fullmatch(name) and isinstance(held, dict)
    ]
    marked = [part for part in parts if vars(part).pop(_HOOKED, False)]
    for held, _ in taken:
        held.clear()
    try:
        yield
    finally:
        for held, before in taken:
            held.clear()
            held.update(before)
        for part in parts:
            vars(part).pop(_HOOKED, None)
        for part in marked:
            setattr(part, _HOOKED, True)


@contextmanager
def _by_value(value: Any, types: Mapping[str, type]) -> Iterator[None]:
    """Write classes of modules that no other process can import by their contents."""
    import cloudpickle  # noqa: TID251  # our own store
    import torch

    parts = value.modules() if isinstance(value, torch.nn.Module) else ()
    classes = [cls for part in parts for cls in type(part).__mro__]
    names = {
        getattr(one, "__module__", "") for one in (*classes, *types.values(), value)
    }
    strangers = [
        module
        for name in names
        if name and name != "__main__" and not _is_found(name)
        for module in [sys.modules.get(name)]
        if module is not None
    ]
    for module in strangers:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in strangers:
            with suppress(ValueError):
                cloudpickle.unregister_pickle_by_value(module)


def _is_found(name: str) -> bool:
    """Whether another process with this search path finds a module."""
    held = sys.modules.pop(name, None)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    finally:
        if held is not None:
            sys.modules[name] = held
    return spec is not None


def _unpicklable(value: Any) -> Iterator[str]:
    """Yield the places in a module of what cannot be written."""
    import cloudpickle  # noqa: TID251  # our own store
    import torch

    if not isinstance(value, torch.nn.Module):
        return
    for name, part in value.named_modules():
        for key, held in vars(part).items():
            if key in {"_parameters", "_buffers", "_modules"} or _HOOKS.fullmatch(key):
                continue
            try:
                cloudpickle.dumps(held)
            except Exception:  # noqa: BLE001  # it may raise anything
                yield f"{f'{name}.' if name else ''}{key} ({type(held).__name__})"
