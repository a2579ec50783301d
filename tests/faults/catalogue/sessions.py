"""Runtimes that go wrong: each stands between the harness and a loaded file."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.runtimes.session import Ran, Session

Array = np.ndarray
Arrays = dict[str, Array]
OnValue = Callable[[str, Array], None]
FOREVER_S = 3600.0


class Passing:
    """Passes everything on: outputs through `change`, values through `showing`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runs = 0

    @property
    def ran(self) -> Ran:
        return self.session.ran

    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        self.runs += 1
        return self.change(self.session.run(feeds))

    def watch(
        self, feeds: Mapping[str, Array], sizes: Mapping[str, int], on_value: OnValue
    ) -> Arrays:
        self.runs += 1
        return self.change(self.session.watch(feeds, sizes, self.showing(on_value)))

    def isolate(
        self, feeds: Mapping[str, Array], given: Mapping[str, Array], on_value: OnValue
    ) -> None:
        self.session.isolate(feeds, given, self.showing(on_value))

    def change(self, outputs: Arrays) -> Arrays:
        return outputs

    def showing(self, on_value: OnValue) -> OnValue:
        return on_value


class Each(Passing):
    """Does the same to every output."""

    def change(self, outputs: Arrays) -> Arrays:
        return {name: self.each(value) for name, value in outputs.items()}

    def each(self, value: Array) -> Array:
        raise NotImplementedError


class StaleBuffer(Passing):
    """Hands out what the first run of these sizes left."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.kept: dict[tuple[int, ...], Arrays] = {}

    def change(self, outputs: Arrays) -> Arrays:
        return self.kept.setdefault(next(iter(outputs.values())).shape, outputs)


class SwappedOutputs(Passing):
    """Two outputs of one shape in each other's place."""

    def change(self, outputs: Arrays) -> Arrays:
        one, two = "down_block_res_sample_1", "down_block_res_sample_2"
        return {**outputs, one: outputs[two], two: outputs[one]}


class LostOutput(Passing):
    """The last output is not there."""

    def change(self, outputs: Arrays) -> Arrays:
        return dict(list(outputs.items())[:-1])


class OneNan(Each):
    def each(self, value: Array) -> Array:
        value = value.copy()
        value.flat[value.size // 3] = np.nan
        return value


class Overflowed(Each):
    """Beyond what eight bits of exponent less would hold."""

    def each(self, value: Array) -> Array:
        limit = 0.9 * np.abs(value).max()
        return np.where(np.abs(value) > limit, np.copysign(np.inf, value), value)


class Saturated(Each):
    def each(self, value: Array) -> Array:
        return np.clip(value, -1.0, 1.0)


class Item0ForAll(Each):
    def each(self, value: Array) -> Array:
        return np.repeat(value[:1], len(value), axis=0)


class ItemsReversed(Each):
    def each(self, value: Array) -> Array:
        return value[::-1].copy()


class ThreadDependent(Each):
    """Right on one thread; the second one loses a block."""

    def each(self, value: Array) -> Array:
        if self.ran.threads < 2:
            return value
        value = value.copy()
        value[..., : value.shape[-1] // 8] *= 1.001
        return value


class Noisy(Each):
    """Another answer with every run."""

    def each(self, value: Array) -> Array:
        noise = np.random.default_rng(self.runs).standard_normal(value.shape)
        return value + np.float32(1e-4) * noise.astype(value.dtype)


class LaterWrong(Each):
    """Right in the first run only."""

    def each(self, value: Array) -> Array:
        return value if self.runs == 1 else value * np.float32(1.01)


class Packed(Each):
    """Channels read as if they lay last."""

    def each(self, value: Array) -> Array:
        return np.moveaxis(value, 1, -1).reshape(value.shape)


class EveryFourthZero(Each):
    def each(self, value: Array) -> Array:
        value = value.copy()
        value[:, 3::4] = 0.0
        return value


class AxesSwapped(Each):
    def each(self, value: Array) -> Array:
        return np.ascontiguousarray(np.swapaxes(value, -1, -2))


class OnePixelOff(Each):
    def each(self, value: Array) -> Array:
        return np.roll(value, 1, axis=-1)


class Zeros(Each):
    def each(self, value: Array) -> Array:
        return np.zeros_like(value)


class Halved(Each):
    """Read from float16 memory."""

    def each(self, value: Array) -> Array:
        return value.astype(np.float16)


class Whole(Each):
    def each(self, value: Array) -> Array:
        return value.astype(np.int32)


class Squeezed(Each):
    def each(self, value: Array) -> Array:
        return value[0] if len(value) == 1 else value


class Empty(Each):
    def each(self, value: Array) -> Array:
        return value[:0]


class OptimisedWrong(Each):
    """A wrong fusion: who looks at layers undoes it."""

    def watch(
        self, feeds: Mapping[str, Array], sizes: Mapping[str, int], on_value: OnValue
    ) -> Arrays:
        return self.session.watch(feeds, sizes, on_value)

    def each(self, value: Array) -> Array:
        return value * np.float32(1.001)


class WatchedWrong(Passing):
    """One value is wrong, and what is made of it happens to be right."""

    value = "layer_norm_3"

    def showing(self, on_value: OnValue) -> OnValue:
        def spoilt(name: str, value: Array) -> None:
            on_value(name, self.spoil(value) if name == self.value else value)

        return spoilt

    def spoil(self, value: Array) -> Array:
        return value * np.float32(1.001)


class OneNanInside(WatchedWrong):
    def spoil(self, value: Array) -> Array:
        value = value.copy()
        value.flat[11] = np.nan
        return value


class LayersLost(Passing):
    """Every second value is not shown."""

    def watch(
        self, feeds: Mapping[str, Array], sizes: Mapping[str, int], on_value: OnValue
    ) -> Arrays:
        count = 0

        def some(name: str, value: Array) -> None:
            nonlocal count
            count += 1
            if count % 2:
                on_value(name, value)

        return self.session.watch(feeds, sizes, some)


class FallsBack(Passing):
    """Says so where MNN says it, and computes on."""

    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        os.write(1, b"Can't Find type=3 backend, use 0 instead\n")
        return super().run(feeds)


class Crashes(Passing):
    def run(self, *_: Any, **__: Any) -> Arrays:
        os.abort()


class CrashesWatched(Passing):
    def watch(self, *_: Any, **__: Any) -> Arrays:
        os.abort()


class Hangs(Passing):
    def run(self, feeds: Mapping[str, Array]) -> Arrays:
        time.sleep(FOREVER_S)
        return super().run(feeds)
