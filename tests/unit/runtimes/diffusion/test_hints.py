"""The classic Canny recipe, equal to the bit, without a silent guess."""

import zlib
from fractions import Fraction
from itertools import pairwise

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.errors import SpecError, SuiteError
from harness.plugins.pipelines.drawing.hints import (
    canny_hint,
    fit,
    read_image,
    residual_scales,
    three_channels,
)
from harness.plugins.pipelines.families import fitted_size

TURNED = 6
"""Exif's word for: show it turned by a quarter, clockwise."""


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def plain(colour, height=1, width=1):
    return np.full((height, width, len(colour)), colour, dtype=np.uint8)


def form(array):
    return array.dtype.name, *array.shape


def written(folder, stored, name="picture.png"):
    """The path of a file that holds what OpenCV stores so: BGR, alpha last."""
    path = folder / name
    assert cv2.imwrite(str(path), stored)
    return path


def exif(path, orientation):
    """Put an orientation into a JPEG, or into a PNG, by hand."""
    tag = b"\x12\x01\x03\x00\x01\x00\x00\x00" + bytes([orientation, 0, 0, 0])
    tiff = b"II*\x00\x08\x00\x00\x00\x01\x00" + tag + b"\x00\x00\x00\x00"
    data = path.read_bytes()
    if path.suffix == ".jpg":
        body = b"Exif\x00\x00" + tiff
        chunk = b"\xff\xe1" + (len(body) + 2).to_bytes(2) + body
        path.write_bytes(data[:2] + chunk + data[2:])
        return path
    check = zlib.crc32(b"eXIf" + tiff).to_bytes(4)
    chunk = len(tiff).to_bytes(4) + b"eXIf" + tiff + check
    header = 8 + 25  # the signature and IHDR
    path.write_bytes(data[:header] + chunk + data[header:])
    return path


@pytest.mark.parametrize(
    ("stored", "first"),
    [
        pytest.param(plain((0, 0, 255), 2, 3), [255, 0, 0], id="rgb"),
        pytest.param(plain((10, 20, 30, 40), 2, 3), [30, 20, 10, 40], id="alpha-last"),
        pytest.param(np.full((2, 3), 7, dtype=np.uint8), 7, id="grey"),
    ],
)
def test_a_picture_is_read_in_the_order_of_rgb(tmp_path, stored, first):
    image = read_image(written(tmp_path, stored))
    assert form(image) == ("uint8", *stored.shape)
    assert image[0, 0].tolist() == first


def test_a_name_beyond_ascii_is_read(tmp_path):
    path = written(tmp_path, noise(2, 3)).rename(tmp_path / "フクロウ.png")
    assert read_image(path).shape == (2, 3)


@pytest.mark.parametrize("stored", [noise(16, 32), noise(16, 32, 3)])
@pytest.mark.parametrize("name", ["picture.jpg", "picture.png"])
def test_a_picture_that_lies_on_its_side_is_read_upright(tmp_path, stored, name):
    flat = read_image(written(tmp_path, stored, name))
    upright = read_image(exif(tmp_path / name, TURNED))
    np.testing.assert_array_equal(upright, np.rot90(flat, -1))


def half(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return path


def holding(path, data):
    path.write_bytes(data)
    return path


def saved(name, *shape, dtype="uint8"):
    return lambda at: written(at, noise(*shape).astype(dtype), name)


def cut_short(name):
    return lambda at: half(saved(name, 64, 64, 3)(at))


def text(name, data):
    return lambda at: holding(at / name, data)


UNUSABLE = [
    (
        lambda at: exif(saved("picture.png", 16, 32, 4)(at), TURNED),
        r"\.png.*turn it.*save it turned",
    ),
    (lambda at: at / "bird.png", r"bird\.png: cannot read.*No such file"),
    (lambda at: at, "cannot read the picture: Is a directory"),
    (text("bird.png", b""), r"bird\.png: no picture.*these 0 bytes"),
    (text("bird.png", b"not a picture" * 100), r"bird\.png: no picture.*1,300 bytes"),
    (cut_short("bird.png"), r"bird\.png.*is it cut short"),
    (cut_short("bird.jpg"), r"bird\.jpg.*is it cut short"),
    (text("a.pgm", b"P5 2000000 2000000 255\n"), r"a\.pgm: OpenCV gave the picture up"),
    (saved("bird.png", 4, 4, 3, dtype="uint16"), "is uint16, and 8 bits"),
    (saved("bird.tiff", 4, 4, 3, dtype="float32"), "is float32, and 8 bits"),
]


@pytest.mark.parametrize(("make", "said"), UNUSABLE)
def test_a_picture_that_cannot_be_used_is_refused(tmp_path, make, said):
    with pytest.raises(SuiteError, match=said):
        read_image(make(tmp_path))


def test_other_channels_than_those_of_a_picture_are_refused(tmp_path, monkeypatch):
    path = written(tmp_path, noise(4, 4, 3))
    monkeypatch.setattr(cv2, "imdecode", lambda *_: noise(4, 4, 5))
    with pytest.raises(SuiteError, match="has 5 channels; save it as grey"):
        read_image(path)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3)])
def test_grey_is_repeated_and_rgb_stays_as_it_is(shape):
    image = noise(*shape)
    made = three_channels(image)
    assert form(made) == ("uint8", 2, 3, 3)
    expected = np.broadcast_to(image.reshape(2, 3, -1), (2, 3, 3))
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    ("rgba", "rgb"),
    [
        pytest.param((10, 20, 30, 255), [10, 20, 30], id="opaque"),
        pytest.param((10, 20, 30, 0), [255, 255, 255], id="invisible"),
        # 100 · 128/255 + 255 · 127/255 = 177.196…; of black, 127 less a rounding
        pytest.param((0, 100, 255, 128), [126, 177, 255], id="half"),
        # 10 · 51/255 + 255 · 204/255 = 206; 9 · 0.2 + 204 = 205.8, which is cut
        pytest.param((10, 9, 0, 51), [206, 205, 204], id="a-fifth"),
    ],
)
def test_alpha_is_put_over_white(rgba, rgb):
    assert three_channels(plain(rgba))[0, 0].tolist() == rgb


def test_alpha_over_white_is_cut_and_not_rounded():
    levels, alphas = np.meshgrid(np.arange(256), np.arange(256))
    rgba = np.stack([levels, levels, levels, alphas], axis=-1).astype(np.uint8)

    made = three_channels(rgba)[..., 0].ravel().tolist()

    # In exact numbers. Where the exact one is whole, float32 may fall short of it.
    for got, level, alpha in zip(
        made, levels.ravel().tolist(), alphas.ravel().tolist(), strict=True
    ):
        exact = Fraction(level * alpha + 255 * (255 - alpha), 255)
        assert got in ({exact, exact - 1} if exact == int(exact) else {int(exact)})


def test_white_over_white_is_as_the_recipe_has_it():
    rgba = np.stack([np.full(256, 255)] * 3 + [np.arange(256)], axis=-1)[np.newaxis]
    made = three_channels(rgba.astype(np.uint8))[0, :, 0]
    # 65/255 and 190/255 do not add up to 1 in float32: 254.99998, cut.
    assert made[65] == 254
    assert (made == 254).sum() == 31
    assert (made == 255).sum() == 225


@pytest.mark.parametrize(
    ("image", "said"),
    [
        pytest.param(noise(2, 2, 2), r"uint8 \[2, 2, 2\]", id="two-channels"),
        pytest.param(noise(2, 2, 5), r"uint8 \[2, 2, 5\]", id="five-channels"),
        pytest.param(noise(4), r"uint8 \[4\]", id="a-line"),
        pytest.param(noise(1, 2, 2, 3), r"uint8 \[1, 2, 2, 3\]", id="a-batch"),
        pytest.param(noise(0, 2, 3), r"uint8 \[0, 2, 3\]", id="empty"),
        pytest.param(np.zeros((2, 2, 3)), r"float64 \[2, 2, 3\]", id="floats"),
        pytest.param(noise(2, 2) > 9, r"bool \[2, 2\]", id="truths"),
    ],
)
def test_what_is_no_picture_has_no_three_channels(image, said):
    with pytest.raises(SpecError, match=f"A picture is uint8.*got {said}"):
        three_channels(image)


@pytest.mark.parametrize(
    ("size", "resolution", "fitted"),
    [
        ((512, 512), 512, (512, 512)),
        ((480, 640), 512, (512, 704)),  # 682.7 px
        ((640, 480), 512, (704, 512)),
        ((1080, 1920), 512, (512, 896)),  # 910.2 px
        ((100, 100), 300, (320, 320)),
        ((500, 500), 500, (512, 512)),
        ((100, 100), 96, (128, 128)),  # 1.5: half goes to even
        ((100, 100), 160, (128, 128)),  # 2.5: and even may be below
        ((8, 9), 33, (64, 64)),
    ],
)
def test_sides_go_to_the_nearest_multiple_of_64(size, resolution, fitted):
    height, width = size
    assert fitted_size(height, width, resolution) == fitted
    assert fit(noise(*size, 3), resolution).shape == (*fitted, 3)


@given(
    height=st.integers(1, 6000),
    width=st.integers(1, 6000),
    resolution=st.integers(33, 2048),
)
def test_every_size_fits_a_latent(height, width, resolution):
    rows, columns = fitted_size(height, width, resolution)
    assert rows % 64 == columns % 64 == 0
    assert min(rows, columns) >= 64
    assert abs(min(rows, columns) - resolution) <= 32
    exact = Fraction(max(height, width) * resolution, min(height, width))
    assert abs(max(rows, columns) - exact) <= 32 + Fraction(1, 1000)
    assert (height <= width) == (rows <= columns) or rows == columns


@pytest.mark.parametrize(
    ("resolution", "became"), [(32, "64 × 0"), (1, "0 × 0"), (-64, "-128 × -64")]
)
def test_a_side_of_0_is_refused(resolution, became):
    said = (
        rf"300 × 200 px at resolution {resolution} would become {became} px.* above 32"
    )
    with pytest.raises(SuiteError, match=said):
        fit(noise(200, 300, 3), resolution)


def test_shrinking_takes_the_mean_of_an_area():
    image = noise(256, 384, 3)
    made = fit(image, 64)
    means = image.reshape(64, 4, 96, 4, 3).mean(axis=(1, 3))
    assert made.shape == (64, 128, 3)  # 96 px are 1.5 times 64: half goes to even
    assert np.abs(fit(image[:, :256], 64) - means[:, :64]).max() <= 0.5


def test_the_scale_decides_the_interpolation_and_not_the_rounded_sides():
    image = noise(70, 100, 3)
    up, same = fit(image, 71), fit(image, 70)
    # Both are 64 high and 128 wide: smaller one way, larger the other.
    assert up.shape == same.shape == (64, 128, 3)
    np.testing.assert_array_equal(up, resized(image, (128, 64), cv2.INTER_LANCZOS4))
    np.testing.assert_array_equal(same, resized(image, (128, 64), cv2.INTER_AREA))
    assert (up != same).any()


def test_a_picture_that_fits_is_not_touched():
    image = noise(128, 192, 3)
    np.testing.assert_array_equal(fit(image, 128), image)


def resized(image, size, how):
    return cv2.resize(image, size, interpolation=how)


def edges_of(image, low, high):
    """Canny written out: Sobel, thinned across the gradient, followed from strong ones.

    Each pixel takes the channel of the largest ``|dx| + |dy|``, the first if several
    are. Of two equal neighbours along a row or column, the first one stays.
    """
    height, width = image.shape[:2]

    def at(padded, down, right):
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    padded = np.pad(image.astype(int), ((1, 1), (1, 1), (0, 0)), mode="edge")
    weighed = ((-1, 1), (0, 2), (1, 1))
    dx = sum(w * (at(padded, i, 1) - at(padded, i, -1)) for i, w in weighed)
    dy = sum(w * (at(padded, 1, i) - at(padded, -1, i)) for i, w in weighed)
    steepest = (abs(dx) + abs(dy)).argmax(axis=2)[..., np.newaxis]
    dx, dy = (np.take_along_axis(d, steepest, axis=2)[..., 0] for d in (dx, dy))
    slope = abs(dx) + abs(dy)
    around = np.pad(slope, 1)

    def tops(down, right, least_lead):
        """Steeper than the pixel before, and than the one after by `least_lead`."""
        before, after = at(around, -down, -right), at(around, down, right)
        return (slope > before) & (slope - after >= least_lead)

    angle = np.degrees(np.arctan2(abs(dy), abs(dx)))
    alike = (dx < 0) == (dy < 0)
    thin = np.where(alike, tops(1, 1, 1), tops(1, -1, 1))
    thin = np.where(angle > 67.5, tops(1, 0, 0), thin)
    thin = np.where(angle < 22.5, tops(0, 1, 0), thin)
    weak, found = thin & (slope > low), thin & (slope > high)
    while True:
        near = np.pad(found, 1)
        steps = [at(near, down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
        grown = weak & np.any(steps, axis=0)
        if (grown == found).all():
            return found
        found = grown


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 2**32 - 1),
    blur=st.sampled_from((1, 3, 7)),
    levels=st.sampled_from((256, 4)),
    thresholds=st.tuples(st.integers(1, 255), st.integers(1, 255)).map(sorted),
)
def test_the_hint_is_canny_written_out(size, seed, blur, levels, thresholds):
    image = cv2.blur(noise(*size, 3, seed=seed), (blur, blur))
    image = image // (256 // levels) * (256 // levels)
    low, high = thresholds
    hint = canny_hint(image, low_threshold=low, high_threshold=high)
    np.testing.assert_array_equal(hint[0], edges_of(image, low, high))


def test_a_hint_is_0_and_1_in_three_equal_channels():
    hint = canny_hint(noise(24, 40, 3), low_threshold=100, high_threshold=200)
    assert form(hint) == ("float32", 3, 24, 40)
    assert hint.flags.c_contiguous
    assert np.unique(hint).tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(hint[0], hint[1])
    np.testing.assert_array_equal(hint[0], hint[2])


@pytest.mark.parametrize(("levels", "found"), [(50, 0), (51, 8)])
def test_an_edge_is_steeper_than_the_high_threshold(levels, found):
    # A straight step of n levels has a gradient of 4 n: 200, which is not above 200.
    black, grey = plain((0, 0, 0), 8, 4), plain((levels,) * 3, 8, 4)
    image = np.concatenate([black, grey], axis=1)
    hint = canny_hint(image, low_threshold=100, high_threshold=200)
    assert hint[0].sum() == found
    assert set(np.nonzero(hint[0])[1].tolist()) <= {3}


@pytest.mark.parametrize(
    ("low", "high"), [(0, 200), (-1, 200), (201, 200), (100, 256), (0, 0)]
)
def test_thresholds_out_of_order_are_refused(low, high):
    with pytest.raises(SuiteError, match=f"<= 255, got {low} and {high}; 100 and 200"):
        canny_hint(noise(8, 8, 3), low_threshold=low, high_threshold=high)


def test_every_residual_has_the_strength_outside_guess_mode():
    assert residual_scales(0.7, 13, guess_mode=False) == (0.7,) * 13


@given(strength=st.floats(0.01, 2.0), count=st.integers(1, 40))
def test_each_residual_weighs_0_825_of_the_next(strength, count):
    scales = residual_scales(strength, count, guess_mode=True)
    assert scales[-1] == strength
    for one, deeper in pairwise(scales):
        assert one == pytest.approx(0.825 * deeper, rel=1e-12)


@pytest.mark.parametrize(
    ("strength", "count", "said"),
    [
        (1.0, 0, "one residual or more, got 0"),
        (1.0, -1, "one residual or more, got -1"),
        (float("nan"), 13, "must be finite, got nan"),
        (float("inf"), 13, "must be finite, got inf"),
    ],
)
def test_a_strength_or_a_count_that_cannot_be_is_refused(strength, count, said):
    with pytest.raises(SpecError, match=said):
        residual_scales(strength, count, guess_mode=True)


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda image: fit(image, 512), id="fit"),
        pytest.param(
            lambda image: canny_hint(image, low_threshold=1, high_threshold=2),
            id="canny_hint",
        ),
    ],
)
@pytest.mark.parametrize(
    ("image", "said"),
    [
        (noise(4, 4), r"uint8 \[4, 4\]"),
        (noise(4, 4, 1), r"uint8 \[4, 4, 1\]"),
        (noise(4, 4, 4), r"uint8 \[4, 4, 4\]"),
        (noise(4, 0, 3), r"uint8 \[4, 0, 3\]"),
        (np.zeros((4, 4, 3), np.float32), r"float32 \[4, 4, 3\]"),
    ],
)
def test_what_is_not_rgb_is_refused(use, image, said):
    with pytest.raises(SpecError, match=f"got {said}; pass it through `three_channels"):
        use(image)
