"""Which inputs and outputs of a foreign model are which of a recipe's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from harness.core.case import DTYPES, Component, TensorSpec
from harness.core.errors import StoreError
from harness.core.received import DamagedError, read_json

BY_NAMES = "names"
"""The alignment of a file whose values have the names of a graph that we export."""

FILE = "names.json"
"""Name of the file with the names. It lies beside a foreign model in the store, and
beside what is made from that model."""


class Fed(msgspec.Struct, frozen=True, kw_only=True):
    """An input of the file, and `given`, the recipe's input whose values it gets.

    Dtype and shape are those of the file, as in `Port`.
    """

    name: str
    given: str
    dtype: str
    shape: tuple[int | str, ...] | None


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Which inputs and outputs of a file correspond to which of a recipe.

    Attributes:
        inputs: Inputs of the file, in its order.
        outputs: Pairs of each output of the file, in its order, and the recipe's name
            for it. The name is empty if the recipe has no such output.
        left_out: Outputs of the recipe that the file lacks.
        unfed: Inputs of the recipe that the file lacks, according to the suite.
        by: Way in which its values were aligned with PyTorch's: `BY_NAMES`, `ITSELF`,
            `ANOTHER_FILE`, or another one of whoever aligned them.

    """

    inputs: tuple[Fed, ...]
    outputs: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()
    by: str = ""

    @property
    def own_inputs(self) -> list[str]:
        """Inputs of the file, by its own names."""
        return [one.name for one in self.inputs]

    @property
    def own_outputs(self) -> list[str]:
        """Outputs of the file, by its own names."""
        return [name for name, _ in self.outputs]

    @property
    def extra(self) -> tuple[str, ...]:
        """Outputs of the file that the recipe does not have."""
        return tuple(name for name, known in self.outputs if not known)

    @property
    def compared(self) -> dict[str, str]:
        """The recipe's name of each output of the file that is compared."""
        return {name: known for name, known in self.outputs if known}

    def save(self, folder: Path) -> None:
        """Write `FILE` to a folder."""
        (folder / FILE).write_bytes(msgspec.json.encode(self))

    @classmethod
    def load(cls, folder: Path) -> Names | None:
        """Read `FILE` from a folder; None if it is not there.

        Raises:
            StoreError: The file is damaged.

        """
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            return read_json(path, cls)
        except (OSError, DamagedError) as error:
            msg = f"{path} holds no readable names: {error}. Run `parity store verify`."
            raise StoreError(msg) from error


def as_given(component: Component, names: Names | None) -> Component:
    """Return a component with a file's inputs and outputs, by the recipe's names.

    The component is unchanged if the harness made the file.
    """
    if names is None:
        return component
    given = names.compared.values()
    return replace(
        component,
        inputs=tuple(s for s in component.inputs if s.name not in names.unfed),
        outputs=tuple(s for s in component.outputs if s.name in given),
    )


def as_named(component: Component, names: Names) -> Component:
    """Return a component with a file's inputs and outputs, by the file's names.

    A file that is made from this file must keep these names. Only the names of outputs
    are known.
    """
    dtypes = {spec.name: spec.dtype for spec in component.inputs}
    return replace(
        component,
        inputs=tuple(
            TensorSpec(
                name=one.name,
                shape=one.shape or (),
                dtype=one.dtype if one.dtype in DTYPES else dtypes[one.given],
            )
            for one in names.inputs
        ),
        outputs=tuple(TensorSpec(name=name, shape=()) for name in names.own_outputs),
    )


def about(names: Names, lined_up: Names | None) -> dict[str, object]:
    """Return a record's facts about a foreign model, and how it was aligned."""
    return {
        "by": (lined_up or names).by,
        "left_out": list(names.left_out),
        "extra": list(names.extra),
        "unfed": list(names.unfed),
    }
