"""Find which code a user's own recipe runs to build its network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.case import Component
from harness.engine.own_code import is_own_file, own_code
from harness.recipes import own_modules, recipe_module


def find_imports(component: Component) -> list[str]:
    """Build a component, and return the absolute paths of the user's code that it ran.

    That code is what was imported, or run in another way, or read as text. Modules
    that its functions import later count too. Files of installed packages do not.

    Raises:
        Exception: The network cannot be built.

    """
    with _seen_files() as seen:
        recipe_module(component.recipe).build(component)
    modules = {
        name: file
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
    }
    found = {Path(file).absolute() for file in (*seen, *modules.values())}
    own = {path for path in found if path.is_file() and is_own_file(path)}
    named = {name for name, file in modules.items() if Path(file).absolute() in own}
    imported, _ = own_code(
        *(own_modules(component) or ()), *sorted(named - {"__main__"})
    )
    return sorted({str(path.absolute()) for path in (*own, *imported)})


@contextmanager
def _seen_files() -> Iterator[set[str]]:
    """Yield a set that gets the names of the files whose code runs meanwhile."""
    seen: set[str] = set()
    watches = [True]  # a hook cannot be removed

    def hook(event: str, given: tuple[object, ...]) -> None:
        if (
            watches
            and event in _FILE_OF
            and isinstance(file := _FILE_OF[event](given), str)
        ):
            seen.add(file)

    sys.addaudithook(hook)
    try:
        yield seen
    finally:
        watches.clear()


def _opened(given: tuple[object, ...]) -> object:
    path = given[0]
    path = str(path) if isinstance(path, Path) else path
    return path if isinstance(path, str) and path.endswith(".py") else None


_FILE_OF: dict[str, Callable[[tuple[object, ...]], object]] = {
    # The code object has the name of its file, also if it comes from a cache.
    "exec": lambda given: getattr(given[0], "co_filename", None),
    "open": _opened,
}
