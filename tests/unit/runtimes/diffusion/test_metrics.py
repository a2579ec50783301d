"""Metrics of pairs that packages add: what they return is checked."""

from importlib import metadata

import numpy as np
import pytest

from harness.core.errors import StageError
from harness.core.pipeline import METRIC_GROUP
from harness.runtimes.diffusion import metrics

PICTURE = np.zeros((2, 2, 3))


def returning(value):
    return lambda: lambda _expected, _actual: value


median, negative, words, nothing = map(returning, (np.float32(0.5), -1.0, "much", None))


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """The metrics of this module, as a package would offer them."""
    points = [
        metadata.EntryPoint(name, f"{__name__}:{name}", METRIC_GROUP)
        for name in ("median", "negative", "words", "nothing", "absent")
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda **_: points)


def test_a_number_of_numpy_becomes_one_that_a_record_can_hold():
    loss = metrics.metrics_of(["median"])["median"](PICTURE, PICTURE)

    assert (type(loss), loss) == (float, 0.5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("negative", "'negative' returned -1; an error is 0 or more"),
        ("words", "'words' returned no number"),
        ("nothing", "'nothing' returned no number"),
    ],
)
def test_what_is_no_error_of_a_picture_is_refused_by_name(name, said):
    with pytest.raises(StageError, match=said):
        metrics.metrics_of([name])[name](PICTURE, PICTURE)


def test_a_metric_that_cannot_be_loaded_says_where_it_is_looked_for():
    with pytest.raises(StageError, match=r"'absent' of .*test_metrics:absent cannot"):
        metrics.metrics_of(["absent"])
