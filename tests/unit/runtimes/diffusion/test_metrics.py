"""Metrics of pairs: those of networks, and those that packages add."""

import sys
from importlib import metadata

import numpy as np
import pytest
import torch
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

from harness.core.errors import StageError
from harness.plugins.pipelines.case import METRIC_GROUP
from harness.plugins.pipelines.drawing import metrics

PICTURE = np.zeros((2, 2, 3))
LPIPS = """\
import torch


class LPIPS:
    def __init__(self, **options):
        torch.hub.load_state_dict_from_url("https://example.org/alexnet-owt-7be5be79.pth")

    def __call__(self, expected, actual):
        assert expected.shape == (1, 3, 24, 32) and expected.abs().max() <= 1
        return ((expected - actual) ** 2).mean()
"""
DREAMSIM = """\
import torch


def dreamsim(*, device, cache_dir):
    def distance(expected, actual):
        assert expected.shape == (1, 3, 224, 224)
        assert expected.min() >= 0 and expected.max() <= 1
        pair = expected.flatten(), actual.flatten()
        return 1 - torch.cosine_similarity(*pair, dim=0)

    return distance, None
"""


def returning(value):
    return lambda: lambda _expected, _actual: value


def long():
    msg = "no weights.\nThey were looked for\nin many places."
    raise FileNotFoundError(msg)


median, negative, words, nothing = map(returning, (np.float32(0.5), -1.0, "much", None))


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """The metrics of this module, as a package would offer them."""
    points = [
        metadata.EntryPoint(name, f"{__name__}:{name}", METRIC_GROUP)
        for name in ("median", "negative", "words", "nothing", "absent", "long")
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", r"'absent' of .*test_metrics:absent cannot"),
        ("long", r"'long' of .* cannot be used: no weights\.$"),  # of many lines
    ],
)
def test_a_metric_that_cannot_be_loaded_is_one_sentence(name, said):
    with pytest.raises(StageError, match=said):
        metrics.metrics_of([name])


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Stand-ins of lpips and dreamsim, whose weights nobody may download."""

    def downloaded(*_, **__):
        pytest.fail("a metric downloaded its weights")

    for name, text in (("lpips", LPIPS), ("dreamsim", DREAMSIM)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    hub = tmp_path / "hub"
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(hub))
    monkeypatch.setattr(torch.hub, "download_url_to_file", downloaded)
    return hub


@pytest.fixture
def weights(packages):
    """The cache of PyTorch with a file for each that these metrics read."""
    for name in (f"checkpoints/{metrics.ALEXNET}", *metrics.DREAMSIM_FILES):
        path = packages / name.replace("*", "safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({}, path)
    return packages


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


@pytest.mark.parametrize("name", ["psnr", "ssim", "lpips", "dreamsim", "clip"])
@pytest.mark.usefixtures("weights", "clip")
def test_a_loss_grows_in_proportion_to_the_error(name):
    rng = np.random.default_rng(0)
    picture, error = rng.uniform(5.0, 250.0, (2, 24, 32, 3))
    error = (error - 127.5) / 127.5
    metric = metrics.metrics_of([name])[name]
    same, near, far = (metric(picture, picture + f * error) for f in (0.0, 1.0, 4.0))
    assert same == pytest.approx(0.0, abs=1e-3 * near if name == "psnr" else near)
    assert far == pytest.approx(4 * near, rel=0.2)


@pytest.mark.parametrize(
    "missing", [f"checkpoints/{metrics.ALEXNET}", *metrics.DREAMSIM_FILES]
)
def test_a_metric_one_of_whose_files_is_missing_names_it(weights, missing):
    (weights / missing.replace("*", "safetensors")).unlink()
    name = "lpips" if metrics.ALEXNET in missing else "dreamsim"
    with pytest.raises(StageError, match=f"{name!r} cannot be used") as caught:
        metrics.metrics_of([name])
    assert missing.rpartition("/")[2] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["lpips", "dreamsim"])
def test_a_metric_whose_package_is_missing_says_how_to_install_it(name, monkeypatch):
    monkeypatch.setattr(metrics, "find_spec", lambda _: None)
    said = rf"{name} is not installed; `pip install .\[{name}\]` adds it\.$"
    with pytest.raises(StageError, match=said):
        metrics.metrics_of([name])


def test_clip_of_a_picture_of_nan_is_no_number(clip):
    assert np.isnan(clip(PICTURE, PICTURE * np.nan))


def test_clip_without_its_weights_names_them(monkeypatch, tmp_path):
    monkeypatch.setattr(metrics, "CLIP", str(tmp_path / "absent"))
    with pytest.raises(StageError, match=r"'clip' cannot be used: .*absent is not in"):
        metrics.metrics_of(["clip"])
