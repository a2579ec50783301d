"""Metrics of pairs: those of networks, and those that packages add."""

from importlib import metadata

import numpy as np
import pytest
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

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


@pytest.fixture
def clip(tmp_path, monkeypatch):
    """A small CLIP with drawn weights, in the place of the trained one."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = CLIPVisionConfig(
        **sizes, num_hidden_layers=1, image_size=16, patch_size=8, projection_dim=8
    )
    CLIPVisionModelWithProjection(config).save_pretrained(tmp_path)
    monkeypatch.setattr(metrics, "CLIP", str(tmp_path))
    return metrics.metrics_of(["clip"])["clip"]


def test_clip_sees_more_of_a_larger_error(clip):
    picture = np.random.default_rng(0).uniform(0.0, 255.0, (24, 32, 3))

    same, near, far = (clip(picture, picture * scale) for scale in (1.0, 0.95, 0.5))

    assert same < 1e-9 < near < far


def test_clip_of_a_picture_of_nan_is_no_number(clip):
    assert np.isnan(clip(PICTURE, PICTURE * np.nan))


def test_clip_without_its_weights_names_them(monkeypatch, tmp_path):
    monkeypatch.setattr(metrics, "CLIP", str(tmp_path / "absent"))

    with pytest.raises(StageError, match=r"'clip' cannot be used: .*absent is not in"):
        metrics.metrics_of(["clip"])
