"""Draw a component's inputs, with the same bits for every runtime and process.

This module uses only numpy, except that the realistic profile calls the recipe.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.core.case import VARIED, Component, Sample, TensorSpec
from harness.core.errors import SpecError
from harness.core.toml_file import did_you_mean
from harness.recipes import recipe_module
from harness.recipes.checkpoint import vocabulary
from harness.recipes.diffusion.pictures import edges
from harness.recipes.varied import vary

Array = npt.NDArray[Any]

LOW_STD: Final = 1e-3
"""A small standard deviation. An epsilon of a normalisation, about 1e-5, is negligible
beside a variance of 1, and larger than one of 1e-6. So only this scale shows a wrong
epsilon."""

LARGE_MEAN, LARGE_STD = 100.0, 0.1
"""A mean of a thousand standard deviations: statistics computed as E[x²] − E[x]² then
keep only one digit of float32. It is not larger, so that a UNet of random weights stays
finite in float32, and the values fit fp16."""

LARGEST: Final = 30.0
"""About the largest value of a text encoder's hidden states; latents reach 5."""

TIMESTEPS: Final = 1000
"""Number of training timesteps of every Stable Diffusion."""

LARGEST_SIZE: Final = 4096
"""Side of a picture in pixels, larger than drawn pictures but used in training."""

_PIPELINE: Final = "pipeline"
"""Kind of an input that no profile changes: positions, masks, classes."""

_NORMAL: Final = MappingProxyType(
    {
        "unit-normal": (0.0, 1.0),
        "low-variance": (0.0, LOW_STD),
        "large-mean": (LARGE_MEAN, LARGE_STD),
    }
)
"""Mean and standard deviation by profile."""

# Beyond 2048 fp16 holds only even numbers, beyond 4096 every fourth, and so on. So an
# id that was converted to fp16 looks up its neighbour.
_ODD_IDS: Final = (2049, 4097, 8193, 16385, 32769)


def draw(component: Component, sample: Sample) -> dict[str, Array]:
    """Return one read-only array for each input, in the order of the inputs.

    They depend only on the component's name and the sample. Items of a batch differ
    from each other, to detect a runtime that exchanges them.

    Raises:
        SpecError: A recipe draws something other than the component's inputs, or an
            input cannot be drawn this way.

    """
    rng = generator(component.name, sample)
    shapes = dict(sample.shapes)
    drawn: dict[str, Array] = {}
    if sample.profile == "realistic" or _PIPELINE in {s.draw for s in component.inputs}:
        recipe = recipe_module(component.recipe)
        drawn = _recorded(recipe, component, sample) or recipe.realistic(
            component, shapes, sample.index, rng
        )
        _check_names(component, drawn)
    if sample.profile != "realistic":
        drawn |= {
            spec.name: _draw(component, spec, sample, rng)
            for spec in component.inputs
            if spec.draw != _PIPELINE
        }
    where = f"{component.name} {sample.id}"
    return {
        spec.name: _owned(where, spec, np.asarray(drawn[spec.name]), shapes)
        for spec in component.inputs
    }


def _recorded(
    recipe: Any, component: Component, sample: Sample
) -> dict[str, Array] | None:
    """Return the recorded call that a realistic sample stands for, if there is one.

    Samples of another seed, such as those for calibration, are drawn.
    """
    say = getattr(recipe, "recorded", None)
    if say is None or sample.seed or sample.profile != "realistic":
        return None
    found: dict[str, Array] | None = say(component, dict(sample.shapes), sample.index)
    return found


def generator(name: str, sample: Sample) -> np.random.Generator:
    """Return the random generator for one sample of a component.

    Its seed does not depend on shapes: another size is another draw of the same seed.
    """
    key = f"{name}\0{sample.profile}\0{sample.index}\0{sample.seed}"
    # Python's own hash is different in each process.
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest())
    return np.random.Generator(np.random.PCG64(seed))


def _draw(
    component: Component, spec: TensorSpec, sample: Sample, rng: np.random.Generator
) -> Array:
    shape = spec.bind(dict(sample.shapes))
    if sample.profile == VARIED:
        return vary(component, spec, shape, dict(sample.knobs), rng)
    if spec.draw == "tokens":
        ids = vocabulary(component.source)
        drawn = _tokens(shape, sample.profile, rng, vocabulary=ids)
    elif spec.draw in _DRAWS:
        drawn = _DRAWS[spec.draw](shape, sample.profile, rng)
    else:
        hint = did_you_mean(spec.draw, ("tokens", *_DRAWS))
        msg = f"{component.name}: cannot draw {spec.name} as {spec.draw!r}; {hint}"
        raise SpecError(msg)
    return drawn.astype(spec.dtype)


def _normal(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    if profile == "boundary":
        drawn = rng.choice((-LARGEST, 0.0, LARGEST), size=shape)
        items = drawn.reshape(shape[0], -1) if shape else drawn
        if shape and len(np.unique(items, axis=0)) < len(items):
            # Items of few numbers are equal by chance, and no two of a batch may be.
            items[:, 0] = np.linspace(-LARGEST, LARGEST, len(items))
        return drawn
    return rng.normal(*_NORMAL[profile], size=shape)


def _image(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return a picture in [-1, 1]: noise, flat grey, near white, or hard corners."""
    if profile == "boundary":
        return rng.choice((-1.0, 0.0, 1.0), size=shape)
    if profile == "unit-normal":
        return rng.uniform(-1.0, 1.0, size=shape)
    mean = 0.99 if profile == "large-mean" else 0.0
    return np.clip(rng.normal(mean, LOW_STD, size=shape), -1.0, 1.0)


def _hint(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return a hint in [0, 1]: edges, near black, near white, or salt and pepper."""
    if profile == "boundary":
        return rng.choice((0.0, 1.0), size=shape)
    if profile == "unit-normal":
        return edges(shape, rng)
    noise = np.abs(rng.normal(0.0, LOW_STD, size=shape))
    return np.clip(noise if profile == "low-variance" else 1.0 - noise, 0.0, 1.0)


def _pixels(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return sizes and crops in pixels; the boundary profile has 0 and many."""
    if profile == "boundary":
        drawn = rng.choice((0, LARGEST_SIZE), size=shape)
        drawn[:, 0] = LARGEST_SIZE - np.arange(len(drawn))  # so that items differ
        return drawn
    return rng.integers(0, LARGEST_SIZE, size=shape)


def _timestep(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return timesteps, no two the same; the boundary profile has last and first."""
    items = np.arange(math.prod(shape))
    if profile == "boundary":
        drawn = np.where(items % 2, items // 2, TIMESTEPS - 1 - items // 2)
    else:
        drawn = (rng.integers(0, TIMESTEPS, size=1) + 499 * items) % TIMESTEPS
    return drawn.reshape(shape)


def _tokens(
    shape: tuple[int, ...], profile: str, rng: np.random.Generator, *, vocabulary: int
) -> Array:
    """Return token ids ``[batch, tokens]``; scales do not apply to them.

    Item 0 of the boundary profile has ids at limits of the vocabulary and of fp16. Item
    1 is only padding with the last id, as CLIP pads.
    """
    if profile != "boundary":
        return rng.integers(0, vocabulary, size=shape)
    limits = [0, 1, vocabulary - 2, vocabulary - 1, *_ODD_IDS]
    ids = rng.choice([i for i in limits if 0 <= i < vocabulary], size=shape)
    ids[:1, : len(limits)] = np.array(limits[: shape[-1]]) % vocabulary
    ids[1:2] = vocabulary - 1
    return ids


def _mask(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return a mask of tokens ``[batch, ..., tokens]``: 1 for words, 0 for padding.

    Padding is on the right as in most tokenizers, on the left, or absent. In the
    boundary profile, item 0 has only its first token, and other items have holes. Axes
    between the two, such as those of heads and queries, have one mask for an item.
    """
    batch = math.prod(shape[:1]) if shape[1:] else 1
    drawn = _padded((batch, shape[-1]), profile, rng)
    between = (1 for _ in shape[1:-1])
    items = (batch, *between, shape[-1]) if shape[1:] else shape
    return np.broadcast_to(drawn.reshape(items), shape)


def _padded(shape: tuple[int, int], profile: str, rng: np.random.Generator) -> Array:
    """Return a mask of tokens ``[batch, tokens]``."""
    batch, tokens = shape
    if profile == "low-variance":
        return np.ones(shape)
    if profile == "boundary":
        mask = np.ones(shape)
        mask[:, 1::2] = 0
        mask[0, 1:] = 0
        return mask
    read = np.arange(tokens) < rng.integers(1, tokens + 1, size=(batch, 1))
    return read[:, ::-1] if profile == "large-mean" else read


def _segments(shape: tuple[int, ...], profile: str, rng: np.random.Generator) -> Array:
    """Return types of tokens ``[batch, tokens]``: 0, then 1 from some position on."""
    batch, tokens = shape
    if profile == "boundary":
        return np.arange(tokens) % 2 + np.zeros((batch, 1))
    return np.arange(tokens) >= rng.integers(0, tokens + 1, size=(batch, 1))


_DRAWS: Final[
    Mapping[str, Callable[[tuple[int, ...], str, np.random.Generator], Array]]
] = MappingProxyType(
    {
        "normal": _normal,
        "image": _image,
        "hint": _hint,
        "timestep": _timestep,
        "sizes": _pixels,
        "mask": _mask,
        "segments": _segments,
    }
)


def _check_names(component: Component, drawn: Mapping[str, object]) -> None:
    names = [spec.name for spec in component.inputs]
    if set(drawn) != set(names):
        msg = (
            f"{component.name}: the recipe {component.recipe!r} drew "
            f"{', '.join(sorted(drawn))}; the inputs are {', '.join(names)}."
        )
        raise SpecError(msg)


def _owned(
    where: str, spec: TensorSpec, drawn: Array, shapes: Mapping[str, int]
) -> Array:
    """Check an array against the signature, and return a read-only, contiguous copy."""
    promised = (spec.bind(shapes), spec.dtype)
    if (drawn.shape, drawn.dtype.name) != promised:
        msg = (
            f"{where}: {spec.name} is drawn as {drawn.dtype.name} {drawn.shape}, and "
            f"the signature says {spec.dtype} {promised[0]}."
        )
        raise SpecError(msg)
    if drawn.dtype.kind == "f" and not np.isfinite(drawn).all():
        msg = f"{where}: {spec.name} is drawn with NaN or infinity in it."
        raise SpecError(msg)
    # Two texts may have the same length, and a pipeline's masks may be equal. Then
    # other inputs differ between items.
    equal = {"mask", "segments", _PIPELINE}
    # The last tokens of two texts may be equal too; their caches differ.
    is_id = drawn.dtype.kind == "i" and drawn.shape[1:] == (1,)
    if spec.shape[:1] == ("batch",) and spec.draw not in equal and not is_id:
        _check_distinct(where, spec.name, drawn)
    owned = np.array(drawn, order="C", copy=True)
    owned.setflags(write=False)
    return owned


def _check_distinct(where: str, name: str, batch: Array) -> None:
    seen: dict[bytes, int] = {}
    for index, item in enumerate(batch):
        first = seen.setdefault(hashlib.sha256(item.tobytes()).digest(), index)
        if first != index:
            msg = (
                f"{where}: items {first} and {index} of {name} are equal, so a runtime "
                "that mixes them up would go unseen; draw them apart."
            )
            raise SpecError(msg)
