"""Match the inputs and outputs of a foreign model with a recipe's, by name.

Exact names are matched first, then those that the suite maps under
``[component.NAME.names]``. Names are never matched because they look similar: a likely
pair is proposed, and used only if the user writes it into the suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.core.case import DTYPES, Component, TensorSpec
from harness.core.errors import StoreError, SuiteError
from harness.core.onnx_header import Port
from harness.core.received import DamagedError, read_json

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
        by: Way in which its values were aligned with PyTorch's, one of those in
            `harness.runtimes.foreign.lineup`, or `ITSELF`.

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


Whose = Callable[[Component, Sequence[Port], Sequence[Port]], str]
"""Function that returns the component to which a file's inputs and outputs belong;
empty if there is none."""


def match(
    component: Component,
    file: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    *,
    whose: Whose | None = None,
) -> Names:
    """Match a file's inputs and outputs with a component's.

    `file` is its name in messages. `whose` is called before a file is refused, because
    the file may belong to another component.

    Returns:
        The names of both sides. `Names.by` is still empty.

    Raises:
        SuiteError: An input of either side has no partner, no output has one, or the
            mapping has a name that does not exist. The message says what to write.

    """
    mapped = dict(component.foreign.names) if component.foreign else {}
    _check_mapping(component, file, mapped, (*inputs, *outputs))
    to_file = {
        spec.name: mapped.get(spec.name, spec.name)
        for spec in (*component.inputs, *component.outputs)
    }
    for specs in (component.inputs, component.outputs):
        theirs = Counter(filter(None, (to_file[spec.name] for spec in specs)))
        for name in (name for name, times in theirs.items() if times > 1):
            ours = [spec.name for spec in specs if to_file[spec.name] == name]
            text = (
                f"{file}: {' and '.join(ours)} both stand for {name!r}. Give one of "
                f"them another name of the file, under [component.{component.name}"
                ".names]."
            )
            raise SuiteError(text)
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
        pairs = _likely(lacking, unknown)
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
    """Return the pairs where kind, rank and fixed sizes leave one choice."""
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
