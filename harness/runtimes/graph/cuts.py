"""Cut a graph at named values, so that each piece runs on given values.

This module handles names only; a backend makes the cuts. The *cut* of a value is the
part of the graph between it and the nearest known values that it is computed from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGroup:
    """Cuts that can run together, since none reads a value that another makes.

    The values named in `given` are fed, and those in `made` are read.
    """

    given: tuple[str, ...]
    made: tuple[str, ...]


def nearest(
    value: str, inputs_of: Mapping[str, Sequence[str]], known: Collection[str]
) -> tuple[str, ...]:
    """Return the nearest known values that `value` is computed from.

    >>> inputs_of = {"c": ["b", "a"], "b": ["a"], "a": ["x"]}
    >>> nearest("c", inputs_of, {"a", "x"}), nearest("c", inputs_of, {"x"})
    (('a',), ('x',))
    """
    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = list(inputs_of.get(value, ()))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in known:
            found[name] = None
        else:
            waiting += inputs_of.get(name, ())
    return tuple(sorted(found))


def grouped(
    values: Iterable[str],
    inputs_of: Mapping[str, Sequence[str]],
    known: Collection[str],
) -> tuple[CutGroup, ...]:
    """Put the cuts of `values` into few groups, by first fit.

    In a group no value is both given and made: a runtime would return the given one.

    >>> chain = {"c": ["b"], "b": ["a"], "a": ["x"]}
    >>> [group.made for group in grouped("abc", chain, {"x", "a", "b", "c"})]
    [('a', 'c'), ('b',)]
    """
    groups: list[tuple[set[str], dict[str, None]]] = []
    for value in values:
        given = set(nearest(value, inputs_of, known))
        if not given:  # a constant
            continue
        for fed, made in groups:
            if value not in fed and not given & made.keys():
                fed.update(given)
                made[value] = None
                break
        else:
            groups.append((given, {value: None}))
    return tuple(
        CutGroup(given=tuple(sorted(fed)), made=tuple(made)) for fed, made in groups
    )
