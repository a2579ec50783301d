"""Which files a recipe of a user's own has: its module, and what that imports."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

_STANDARD: Final = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_OURS: Final = __name__.partition(".")[0]


def own_files(name: str) -> list[Path]:
    """Return the file of a module, and of each module of the user's that it imports.

    Installed packages are left out, unless the module itself is in one: then the rest
    of that package counts. A module that is imported while a function runs counts too.
    One that is named by a text only, as `importlib.import_module` takes, does not.

    Args:
        name: Name of the module. It may be absent; then there are no files.

    """
    package = name.partition(".")[0]
    found: dict[str, Path] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        top = one.partition(".")[0]
        # The spec of an inner module imports the packages around it, so the outermost
        # one is asked first: it may be PyTorch.
        if one in found or not (top == package or _is_own(top)):
            continue
        spec = _spec(one)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        found[one] = Path(spec.origin)
        waiting += _imported(found[one], spec)
    return sorted(set(found.values()))


def _spec(name: str) -> ModuleSpec | None:
    above = name.rpartition(".")[0]
    around = _spec(above) if above else None
    if above and (around is None or around.submodule_search_locations is None):
        return None  # of a function, for example: only a package has modules
    # To look into a package imports it, and its code may raise anything.
    with suppress(Exception):
        return importlib.util.find_spec(name)
    return None


def _is_own(top: str) -> bool:
    spec = None if top == _OURS else _spec(top)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return False
    path = Path(spec.origin).resolve()
    return not (path.is_relative_to(_STANDARD) or _INSTALLED & set(path.parts))


def _imported(path: Path, spec: ModuleSpec) -> Iterator[str]:
    """Yield the names that a module imports, which may be of modules."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError):
        return  # importing it says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = "." * node.level + (node.module or "")
            if node.level:
                with suppress(ImportError):
                    name = importlib.util.resolve_name(name, spec.parent)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)
