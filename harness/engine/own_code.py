"""The code of a user's own recipe: its module, and what that imports."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

_STANDARD: Final = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_OURS: Final = __name__.partition(".")[0]
_HOME: Final = Path(__file__).resolve().parents[1]


def own_code(*names: str) -> tuple[list[Path], set[str]]:
    """Return the files of modules and of what they import, and the packages they need.

    The files are those of the user. Those of installed packages are left out, unless
    a module itself is in one: then the rest of that package counts. A module that is
    imported while a function runs counts too. One that is named by a text only, as
    `importlib.import_module` takes, does not. An absent module has no files.

    Returns:
        The files, sorted; and the outermost names of the installed packages.

    """
    packages = {name.partition(".")[0] for name in names}
    found: dict[str, Path] = {}
    installed: set[str] = set()
    waiting = [*names]
    while waiting:
        one = waiting.pop()
        top = one.partition(".")[0]
        if not one or one in found:
            continue
        # The spec of an inner module imports the packages around it, so the outermost
        # one is asked first: it may be PyTorch.
        if not (top in packages or _is_own(top)):
            installed.add(top)
            continue
        waiting.append(one.rpartition(".")[0])  # a package runs before its modules
        spec = _spec(one)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        found[one] = Path(spec.origin)
        waiting += _imported(found[one], spec)
    return sorted(set(found.values())), installed - sys.stdlib_module_names - {_OURS}


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
    if spec is None:
        return False
    places = [spec.origin] if (spec.origin or "").endswith(".py") else []
    if spec.origin is None:  # a folder without an __init__.py
        places = list(spec.submodule_search_locations or ())
    return any(_is_own_place(Path(place).resolve()) for place in places if place)


def _is_own_place(path: Path) -> bool:
    return not (path.is_relative_to(_STANDARD) or _INSTALLED & set(path.parts))


def is_own_file(path: Path) -> bool:
    """Whether a file of code is neither Python's, an installed package's nor ours."""
    path = path.resolve()
    return _is_own_place(path) and not path.is_relative_to(_HOME)


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
