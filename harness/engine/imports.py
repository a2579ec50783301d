"""Which code a user's own `build` runs, wherever that lies: it is part of the keys.

Only running `build` shows it: it may put any folder on Python's path. So it runs once,
and the store keeps the names of the files. If one of them changes, it may import
others, and `build` runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from harness.core.case import Case, Component
from harness.core.digest import digest_file, digest_value
from harness.core.end_to_end import EndToEndCase, Tested
from harness.core.errors import ParityError
from harness.core.memory import Need
from harness.core.outcome import Outcome
from harness.engine.own_code import own_code
from harness.engine.stage import Stage
from harness.engine.store import Store
from harness.recipes import own_modules

if TYPE_CHECKING:
    from harness.engine.worker_pool import WorkerPool

IMPORTS: Final = Stage(
    kind="imports",
    takes=("component", "code_so_far", "places"),
    code=("runtimes/pytorch", "engine/own_code.py"),
    notes=("files",),
)
"""The files that a user's own `build` runs, which are of this machine."""

_FIND_IMPORTS: Final = "harness.runtimes.pytorch.imports:find_imports"
"""Builds one component, and returns the files of code that ran (`torch`)."""

_MOST: Final = 8
"""The largest number of remembered lists that are followed."""


Forecast = Callable[[Case, str], Need | None]
TestedT = TypeVar("TestedT", bound=Tested)


@dataclass(frozen=True, eq=False)
class Imports:
    """The code of the components of a store; usable from several threads.

    Attributes:
        store: The store that keeps the names of the files.
        worker_pool: Builds networks.
        need: Returns the memory that a stage of a case needs.

    """

    store: Store
    worker_pool: WorkerPool
    need: Forecast
    _known: dict[Component, Component] = field(default_factory=dict, init=False)

    def known(self, case: TestedT) -> TestedT:
        """Return a case whose components say which code of the user's own they run.

        The keys of all that is made of it depend on that code.
        """
        if isinstance(case, EndToEndCase):
            of_component = partial(self._with_code, need=lambda: None)
            return case.with_code(of_component, self.known)
        need = partial(self.need, case, "torch")
        component = self._with_code(case.component, need)
        return cast("TestedT", replace(case, component=component))

    def _with_code(
        self, component: Component, need: Callable[[], Need | None]
    ) -> Component:
        if own_modules(component) is None or component.code:
            return component

        def find(component: Component) -> Sequence[str]:
            result = self.worker_pool.job(
                "torch",
                _FIND_IMPORTS,
                component,
                subject=component.name,
                label=f"{component.name}: what its recipe imports",
                failure=Outcome.EXPORT,
                need=need(),
            )
            return cast("Sequence[str]", result.value)

        with self.worker_pool.one_at_a_time(("imports", component)):
            if component not in self._known:
                self._known[component] = with_imports(component, self.store, find)
            return self._known[component]


def with_imports(
    component: Component, store: Store, find: Callable[[Component], Sequence[str]]
) -> Component:
    """Return a component whose `code` is a digest of the files that `build` runs.

    Each list of files is kept under the contents of the list before it. `find` builds
    the component and returns the names of the files. If it cannot be built, `code` is
    empty, and the stage that needs the network says why.
    """
    known = component
    for _ in range(_MOST):
        entry = IMPORTS.find(store, *_decides(known))
        if entry is None:
            break
        code = _code(cast("Sequence[str]", entry.meta["files"]))
        if code == known.code:
            return known
        known = replace(component, code=code)
    with suppress(ParityError):
        files = list(find(component))
        found = replace(component, code=_code(files))
        for one in (known, found):
            IMPORTS.make(store, lambda _: {"files": files}, *_decides(one))
        return found
    return component


def _decides(component: Component) -> tuple[object, ...]:
    """Return what decides the list; `component.code` is of the files known so far."""
    files, _ = own_code(*(own_modules(component) or ()))
    places = [str(path) for path in (*files, component.source.path.absolute())]
    return component, component.code, places


def _code(files: Sequence[str]) -> str:
    """Return one digest of files, which does not depend on the place of the folders."""
    there = [path for path in map(Path, files) if path.is_file()]
    return digest_value(sorted([path.name, digest_file(path)] for path in there))
