"""At which sizes alone a case fails."""

import pytest

from harness.core.record import OUTPUTS
from tests.unit.found import verdicts_of
from tests.unit.reports import chain, output, record


@pytest.mark.parametrize(
    ("fails", "agrees", "words"),
    [
        ([(3, 8), (5, 8)], [(1, 8), (2, 8)], "only from batch 3 on"),
        ([(1, 8)], [(2, 8), (3, 8)], "only up to batch 1"),
        ([(3, 8), (5, 8)], [(1, 8), (4, 8)], "only at batch 3, 5"),
        ([(5, 8)], [(1, 8), (3, 8)], "only from batch 5 on (up to 3 it agrees)"),
        ([(1, 8)], [(4, 8)], "only up to batch 1 (from 4 on it agrees)"),
        ([(2, 9)], [(1, 8)], "only from batch 2 on or from width 9 on"),
        ([(2, 9)], [(2, 8), (3, 8)], "only from width 9 on"),
        ([(1, 8), (3, 8)], [(1, 8)], ""),
        ([(3, 8)], [], ""),
        ([], [(1, 8)], ""),
    ],
)
def test_the_sizes_that_tell_failures_are_said(tmp_path, fails, agrees, words):
    every = [*((one, 900) for one in fails), *((one, 0) for one in agrees)]
    rows = [output(floors, sample=f"s-{at}") for at, (_, floors) in enumerate(every)]
    shapes = {
        f"s-{at}": {"batch": batch, "width": width}
        for at, ((batch, width), _) in enumerate(every)
    }

    verdicts = verdicts_of(tmp_path, record(*chain(1), *rows, sizes=shapes))

    (outputs,) = (one for one in verdicts if one.what == OUTPUTS)
    assert outputs.sizes == words
