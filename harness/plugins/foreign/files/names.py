"""Match the inputs and outputs of a foreign model with a recipe's, by name.

Exact names are matched first, then those that the suite maps under
``[component.NAME.names]``. Names are never matched because they look similar: a likely
pair is proposed, and used only if the user writes it into the suite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from harness.core.case import Component, TensorSpec
from harness.core.errors import SuiteError
from harness.core.onnx_ports import Port
from harness.measure.name_map import Fed, Names

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
