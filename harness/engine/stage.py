"""A stage: one kind of entry of the store, and all that decides an entry of it.

A stage is declared once, as a `Stage`. Its key is made of the arguments that decide the
result, of the harness's code, and of the tools. The engine and the worker process both
ask the declaration, so that they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from harness.core.entry import Entry
from harness.core.errors import SpecError, StageError, StoreError
from harness.core.outcome import Outcome
from harness.engine.keys import builds, code_digest, code_of_plugins, part

if TYPE_CHECKING:
    from harness.engine.store import Build, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One kind of entry.

    Attributes:
        kind: Kind of the entries in the store.
        takes: Names of the arguments that decide an entry, in order; the key has them.
        code: Folders and files of the harness's own code that decide an entry.
        tools: Packages that decide an entry.
        plugins: Field of `Plugin` whose functions decide an entry too.
        task: ``module:function`` that makes an entry in a worker process. It gets an
            empty folder and its own arguments, and returns the entry's notes. It is
            empty if a larger task makes several entries at once.
        host: Name of the host of the worker process.
        failure: Outcome of an exception of the task that has none.
        seconds: Kind of seconds that a record has for its jobs; empty for none.
        files: Names of files that every entry has.
        notes: Names of notes that every entry has.

    """

    kind: str
    takes: tuple[str, ...]
    code: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    plugins: str = ""
    task: str = ""
    host: str = "torch"
    failure: Outcome = Outcome.EXPORT
    seconds: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def key(self, *decides: object) -> dict[str, object]:
        """Return the key of the entry that some arguments decide.

        Raises:
            SpecError: Their number is not that of `takes`.

        """
        if len(decides) != len(self.takes):
            msg = f"{self.kind} is decided by {self.takes}, and got {len(decides)}."
            raise SpecError(msg)
        key = dict(zip(self.takes, map(part, decides), strict=True))
        code = {"code": code_digest(self.code)} if self.code else {}
        tools = {"tools": builds(self.tools)} if self.tools else {}
        plugins = {"plugins": code_of_plugins(self.plugins)} if self.plugins else {}
        return {**key, **code, **tools, **plugins}

    def of(self, **changes: Any) -> Self:  # noqa: ANN401  # fields of this class
        """Return the stage with other fields: the kind of a runtime, or its host."""
        return replace(self, **changes)

    def find(self, store: Store, *decides: object) -> Entry | None:
        """Return an entry, or None if the store does not have it.

        Raises:
            StoreError: The entry lacks what every one of its kind has.

        """
        return self.checked(store.find(self.kind, self.key(*decides)))

    def make(self, store: Store, build: Build, *decides: object) -> Entry:
        """Return an entry; `build` makes it in an empty folder if it is missing."""
        entry = store.make(self.kind, self.key(*decides), build)
        self.checked(entry)
        return entry

    def checked(self, entry: Entry | None) -> Entry | None:
        """Return an entry that has all that its kind must have."""
        if entry is not None:
            lacking = {*self.files} - {*entry.files} | {*self.notes} - {*entry.meta}
            if lacking:
                msg = (
                    f"{entry.id} lacks {', '.join(sorted(lacking))}. Remove "
                    f"{entry.path}, and the next run makes it anew."
                )
                raise StoreError(msg)
        return entry


def lost(what: str) -> StageError:
    """Return the error of an entry that is not there after it was made."""
    msg = (
        f"{what}: what was made is not in the store: it was cleared, the harness's "
        "own files were edited, or two suites have recipes of one name; run this again."
    )
    return StageError(msg, outcome=Outcome.LOAD)
