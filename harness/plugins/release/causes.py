"""What changed in a case between two runs, so that results cannot be compared.

A cause is a phrase, and it is the same phrase in each case that shares it: a network's
weights may change the results of a dozen cases and pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.core.private import public_values
from harness.core.record import CaseRecord
from harness.core.text import few


def task_causes(before: CaseRecord, after: CaseRecord) -> tuple[str, ...]:
    """Return what changed in the task of a case: weights, configuration, inputs.

    It is empty where both runs had the same task, as far as their records tell. A
    record of an earlier version has no parts, and then the phrase says less.

    >>> def of(**about):
    ...     return CaseRecord(case="a/b/c", component="a", backend="b", variant="c",
    ...                       asked={}, **about)
    >>> task_causes(of(inputs={"s": "1"}), of(inputs={"s": "2"}))
    ('the weights, the configuration or the inputs of a changed',)
    """
    changed = [
        sample
        for sample in dict.fromkeys((*(before.inputs or {}), *(after.inputs or {})))
        if not same_task(sample, before, after)
    ]
    if not changed:
        return ()
    name = after.component
    if not before.made_of or not after.made_of:
        return (f"the weights, the configuration or the inputs of {name} changed",)
    parts = tuple(_parts(before.made_of, after.made_of))
    if parts:
        return parts
    samples = f" ({few(changed)})" if any(changed) else ""
    return (f"the inputs of {name} changed{samples}",)


def _parts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield a phrase for each network whose parts differ."""
    shared = dict.fromkeys(name.rpartition("/")[0] for name in after if name in before)
    for name in shared:
        checkpoint, configuration, recipe = (
            before.get(f"{name}/{part}") != after.get(f"{name}/{part}")
            for part in ("checkpoint", "configuration", "recipe")
        )
        if recipe:
            yield f"the recipe of {name} or its options changed"
        if configuration:
            # The checkpoint's digest covers both, so it does not tell them apart.
            yield f"the configuration of {name} changed, and perhaps its weights"
        elif checkpoint:
            yield f"the weights of {name} changed"


def settings_causes(before: CaseRecord, after: CaseRecord) -> tuple[str, ...]:
    """Return the device settings of a case that changed, each as a phrase."""
    # An older version has kept personal paths in options of a provider.
    one, two = public_values(before.asked), public_values(after.asked)
    return tuple(
        f"{key} {_setting(one.get(key))} → {_setting(two.get(key))}"
        for key in {**one, **two}
        if one.get(key) != two.get(key)
    )


def _setting(value: object) -> str:
    """Return a device setting as text; hints are pairs of a name and a number."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return str(value)
    return ", ".join(map(_part, value)) or "none"


def _part(value: object) -> str:
    # Another version may have settings that are lists of something else.
    match value:
        case [name, number]:
            return f"{name} = {number}"
    return str(value)


def same_task(sample: str, before: CaseRecord, after: CaseRecord) -> bool:
    """Whether both runs had the same weights and inputs, as far as records tell."""
    one, two = (
        (record.inputs or {}).get(sample, (record.inputs or {}).get(""))
        for record in (before, after)
    )
    return not one or not two or one == two
