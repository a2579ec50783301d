"""Hold a taken file's inputs and outputs against a recipe's, name by name.

Exact names first, then those that the suite maps under ``[component.NAME.names]``.
Nothing is matched by resemblance: a likely pair is proposed, and never used unasked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.core.case import DTYPES, Component, TensorSpec
from harness.core.errors import SuiteError
from harness.core.onnx_header import Port

FILE = "names.json"
"""Beside a taken file in the store, and beside what is made from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """An input of the file, and the recipe's input that it is fed from."""

    name: str
    given: str
    dtype: str
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How a file's signature and a recipe's lie on one another.

    Attributes:
        inputs: In the file's order.
        outputs: Every output of the file, in its order, to the recipe's name for it;
            empty text where the recipe has none.
        left_out: The recipe's outputs that the file does not give.
        unfed: The recipe's inputs that the suite says the file does without.
        by: How its values were lined up with PyTorch's, a way of `lineup`;
            or `ITSELF`.

    """

    inputs: tuple[Fed, ...]
    outputs: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()
    by: str = ""

    @property
    def own_inputs(self) -> list[str]:
        """The file's inputs, by its own names."""
        return [one.name for one in self.inputs]

    @property
    def own_outputs(self) -> list[str]:
        """The file's outputs, by its own names."""
        return [name for name, _ in self.outputs]

    @property
    def extra(self) -> tuple[str, ...]:
        """The file's outputs that the recipe does not know."""
        return tuple(name for name, known in self.outputs if not known)

    @property
    def compared(self) -> dict[str, str]:
        """The file's outputs that are compared, to the recipe's names."""
        return {name: known for name, known in self.outputs if known}

    def save(self, folder: Path) -> None:
        """Write `FILE` to a folder."""
        (folder / FILE).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Names | None:
        """Read `FILE` of a folder; None where there is none."""
        path = folder / FILE
        if not path.is_file():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        fed = [
            Fed(
                **{
                    **row,
                    "shape": None if row["shape"] is None else tuple(row["shape"]),
                }
            )
            for row in data["inputs"]
        ]
        return cls(
            inputs=tuple(fed),
            outputs=tuple((name, known) for name, known in data["outputs"]),
            left_out=tuple(data["left_out"]),
            unfed=tuple(data["unfed"]),
            by=data["by"],
        )


def as_given(component: Component, names: Names | None) -> Component:
    """Return the component with what a file takes and gives, by the recipe's names.

    Itself, where the file is of our making.
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
    """Return the component as a file has it, by the file's own names.

    What is made from the file is to keep these. Of outputs the names alone are known.
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
    """Return what a record says of a taken file, and of how it was lined up."""
    return {
        "by": (lined_up or names).by,
        "left_out": list(names.left_out),
        "extra": list(names.extra),
        "unfed": list(names.unfed),
    }


Whose = Callable[[Component, Sequence[Port], Sequence[Port]], str]
"""Returns the recipe that a file's inputs and outputs are of; empty for none."""


def match(
    component: Component,
    file: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    *,
    whose: Whose | None = None,
) -> Names:
    """Lay a file's inputs and outputs on a component's.

    Args:
        component: Its `taken` holds the suite's mapping.
        file: How messages call it.
        inputs: Of the file.
        outputs: Of the file.
        whose: Asked, before a file is refused, whether it is another component's.

    Raises:
        SuiteError: An input of either side has no partner, no output has one, or the
            mapping names what is not there; says what to write.

    """
    mapped = dict(component.taken.names) if component.taken else {}
    _check_mapping(component, file, mapped, (*inputs, *outputs))
    to_file = {
        spec.name: mapped.get(spec.name, spec.name)
        for spec in (*component.inputs, *component.outputs)
    }
    known = {port.name for port in inputs}
    fed = {to_file[s.name]: s.name for s in component.inputs if to_file[s.name]}
    unfed = tuple(s.name for s in component.inputs if not to_file[s.name])
    lacking = [s for s in component.inputs if to_file[s.name] not in {*known, ""}]
    unknown = [port for port in inputs if port.name not in fed]
    made = {to_file[s.name]: s.name for s in component.outputs}
    found = tuple((port.name, made.get(port.name, "")) for port in outputs)
    given = {name for _, name in found}
    left_out = [spec for spec in component.outputs if spec.name not in given]
    extra = [port for port in outputs if port.name not in made]
    if lacking or unknown or not any(given):
        pairs = [*_likely(lacking, unknown)]
        if not any(given):
            pairs += _likely(left_out, extra)
        wrong = [f"{spec.name} has no input of the file" for spec in lacking]
        wrong += [f"{port.name} is fed from nothing" for port in unknown]
        wrong += [] if any(given) else ["no output of the file is one of the recipe's"]
        sides = _both_sides(component, inputs, outputs)
        other = whose(component, inputs, outputs) if whose else ""
        if other:
            text = (
                f"{file}: {'; '.join(wrong)}. {sides} Those are the names of "
                f"{other!r}: this file belongs under [component.{other}], and not "
                f"under [component.{component.name}]."
            )
            raise SuiteError(text)
        text = f"{file}: {'; '.join(wrong)}. {sides} {_way_out(component, pairs)}"
        unpaired = [s.name for s in lacking if s.name not in dict(pairs)]
        if unpaired and not unknown:
            text += f' An input that the file does without is {unpaired[0]} = "".'
        raise SuiteError(text)
    return Names(
        inputs=tuple(
            Fed(name=p.name, given=fed[p.name], dtype=p.dtype, shape=p.shape)
            for p in inputs
        ),
        outputs=found,
        left_out=tuple(spec.name for spec in left_out),
        unfed=unfed,
    )


def _check_mapping(
    component: Component, file: str, mapped: Mapping[str, str], ports: Collection[Port]
) -> None:
    own = [spec.name for spec in (*component.inputs, *component.outputs)]
    for name, theirs in mapped.items():
        if name not in own:
            msg = (
                f"[component.{component.name}.names] maps {name!r}, which the recipe "
                f"{component.recipe!r} does not have; it has {', '.join(own)}."
            )
            raise SuiteError(msg)
        there = [port.name for port in ports]
        if theirs and theirs not in there:
            msg = (
                f"[component.{component.name}.names] maps {name!r} to {theirs!r}, "
                f"which {file} does not have; it has {', '.join(there)}."
            )
            raise SuiteError(msg)


def _likely(
    lacking: Sequence[TensorSpec], unknown: Sequence[Port]
) -> list[tuple[str, str]]:
    """Return the pairs that kind of number, rank and fixed sizes leave one way."""
    fits = {
        spec.name: [port.name for port in unknown if _fits(spec, port)]
        for spec in lacking
    }
    return [
        (name, ports[0])
        for name, ports in fits.items()
        if len(ports) == 1 and sum(ports[0] in other for other in fits.values()) == 1
    ]


def _fits(spec: TensorSpec, port: Port) -> bool:
    if port.shape is None:
        return True
    if spec.dtype.startswith("int") and spec.draw == "tokens":
        same_kind = port.dtype.startswith("int")
    else:  # a timestep may be a float or an integer
        same_kind = spec.draw == "timestep" or port.dtype.startswith("float") == (
            spec.dtype.startswith("float")
        )
    if len(port.shape) != len(spec.shape):
        return same_kind and spec.draw == "timestep" and len(port.shape) == 0
    sizes = zip(port.shape, spec.shape, strict=True)
    return same_kind and all(
        one == two
        for one, two in sizes
        if isinstance(one, int) and isinstance(two, int)
    )


def _both_sides(
    component: Component, inputs: Sequence[Port], outputs: Sequence[Port]
) -> str:
    def theirs(ports: Sequence[Port]) -> str:
        return ", ".join(f"{port.name} {port}" for port in ports)

    def ours(specs: Sequence[TensorSpec]) -> str:
        return ", ".join(
            f"{spec.name} {spec.dtype} [{', '.join(map(str, spec.shape))}]"
            for spec in specs
        )

    return (
        f"The file takes {theirs(inputs)} and gives {theirs(outputs)}; the recipe "
        f"{component.recipe!r} takes {ours(component.inputs)} and gives "
        f"{ours(component.outputs)}."
    )


def _way_out(component: Component, pairs: Sequence[tuple[str, str]]) -> str:
    lines = [f'{name} = "{port}"' for name, port in pairs]
    shown = "; ".join(lines) or 'RECIPE_NAME = "NAME_IN_FILE"'
    return f"Write under [component.{component.name}.names]: {shown}."
