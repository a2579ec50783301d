"""A session whose values come from a trace: of a bundle, or of somebody's own program.

The trace has what a runtime showed elsewhere. So a run there is aligned, compared and
judged as one from here.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from harness.core.case import Case, Device
from harness.core.comparison import Comparison
from harness.core.errors import StageError, SuiteError
from harness.core.outcome import Outcome
from harness.core.received import DamagedError, decode
from harness.core.record import Row
from harness.core.runtime import runtime
from harness.measure.align import same_axes, source_value
from harness.measure.compare import compare
from harness.measure.received_arrays import Arrays
from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.form import (
    ABOUT_BYTES,
    FORMAT,
    LAYERS,
    OUTPUTS,
    About,
    Value,
    settings_of,
)
from harness.plugins.elsewhere.remote import sha256
from harness.runtimes.session import SAMPLE, Feeds, OnValue, Opening, Ran, Sketch

ABOUT = "about"
"""Key of the array that has, in JSON, what a trace says about itself."""

_TIMES, _SPARE_BYTES = 16, 1 << 20
"""How many times as many bytes as the reference's value a value may have, and how many
more: a mask has one byte an element, and a value of eight is judged as well."""


@dataclass(frozen=True, slots=True)
class Sketched(Sketch):
    """A value of which the trace has a sketch; see `bundle_run.sketch`.

    Attributes:
        numbers: The sketch, float32.
        shape: Shape of the value.

    """

    numbers: np.ndarray
    shape: tuple[int, ...]

    def compared(self, expected: np.ndarray, floor_rms: float | None) -> Comparison:
        """Compare with the reference's value: the rms of the error is an estimate."""
        shape = same_axes(self.shape, expected.shape) or self.shape
        if shape != expected.shape:
            nothing = np.zeros(self.shape, expected.dtype)
            return compare(expected=expected, actual=nothing, floor_rms=floor_rms)
        found = compare(
            expected=bundle_run.sketch(expected),
            actual=self.numbers,
            floor_rms=floor_rms,
        )
        return structs.replace(
            found,
            expected_shape=expected.shape,
            actual_shape=shape,
            worst_index=None,
        )


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a digest of arrays and their names, dtypes and shapes."""
    whole = hashlib.sha256()
    for name, one in sorted(arrays.items()):
        whole.update(f"{name} {one.dtype.str} {one.shape}".encode())
        whole.update(np.ascontiguousarray(one).tobytes())
    return whole.hexdigest()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in a sentence that a trace cannot be read."""
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror or error})."
        raise SuiteError(msg) from error
    except DamagedError as error:
        msg = (
            f"{path} is no trace, or is damaged ({error}); run the bundle again and "
            "copy the file whole."
        )
        raise SuiteError(msg) from error


def about(path: Path) -> About:
    """Return what a trace says about itself.

    Raises:
        SuiteError: The file is no trace, is damaged, or has another format.

    """
    with reading(path), Arrays(path, ABOUT_BYTES) as arrays:
        if ABOUT not in arrays:
            msg = f"it has no array {ABOUT!r}"
            raise DamagedError(msg)
        text = arrays[ABOUT].tobytes()
        known = decode(text, _Formed).format
        if known != FORMAT:
            msg = (
                f"{path} has format {known}, and this harness reads {FORMAT}; make "
                "the bundle again with `parity bundle`."
            )
            raise SuiteError(msg)
        told = decode(text, About)
        if lacking := {value.array for value in told.values} - set(arrays):
            msg = f"{path} lacks {len(lacking)} of its values; copy the file again."
            raise SuiteError(msg)
    return told


class _Formed(Struct):
    format: int


def size_of(value: Value) -> int:
    """Return the bytes of a value that the trace has whole."""
    return math.prod(value.shape) * np.dtype(value.dtype).itemsize


def most_bytes(reference_bytes: int) -> int:
    """Return the largest size of a value that is read, from that of the reference's."""
    return _TIMES * reference_bytes + _SPARE_BYTES


def most_output_bytes(case: Case, sample: str) -> int:
    """Return the largest size of an output that is read, for a sample of a case."""
    shapes = [dict(one.shapes) for one in case.samples if one.id == sample]
    sizes = shapes or [dict(one.shapes) for one in case.samples]
    outputs = case.component.outputs
    most = max(math.prod(spec.bind(one)) for spec in outputs for one in sizes)
    return most_bytes(most * np.dtype(np.float32).itemsize)


def read_value(arrays: Arrays, value: Value) -> np.ndarray:
    """Return the array of a trace's value; one of another shape takes no memory.

    Raises:
        DamagedError: The array is damaged, or is not as the trace says.

    """
    shape, dtype = value.shape, value.dtype
    if value.sketched:
        shape, dtype = (bundle_run.BUCKETS,), "<f4"
    return arrays.read(value.array, shape, np.dtype(dtype))


class Traced(AbstractContextManager["Traced"]):
    """A deployed file whose values a trace has.

    Raises:
        StageError: The trace is of another file, or was made with other settings.

    """

    def __init__(
        self, path: Path, backend: str, device: Device, outputs: Sequence[str]
    ) -> None:
        assert device.target is not None  # noqa: S101  # a trace is a target's
        self._file = Path(device.target.trace)
        try:
            self._about = about(self._file)
        except SuiteError as error:
            raise StageError(str(error), outcome=Outcome.LOAD) from error
        self._outputs = outputs
        self._inputs = self._about.samples
        self._sample = ""
        files = set(self._about.files.values())
        # A conversion that is made again may have other bytes and mean the same.
        beside = path.parent.glob(f"{path.name}.*")  # weights outside of the graph
        own = [path, *(one for one in beside if one.is_file())]
        same = path.parent.name in self._about.entries or all(
            sha256(one) in files for one in own
        )
        if files and not same:
            msg = (
                f"{self._file.name} was made with another {path.name} than the suite "
                "deploys now; make the bundle again with `parity bundle`, and run it "
                "there."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
        self._check_settings(device)
        declared = runtime(backend)
        # The runtime says there whether it used the precision that was asked for.
        os.write(2, self._about.log.encode())
        self.ran = Ran(
            backend=backend,
            version=self._about.version,
            device=device.device,
            threads=device.threads,
            precision=device.precision if declared.precisions else "float32",
            detail=(
                ("target", device.target.name),
                ("machine", self._about.machine),
                ("trace", self._file.name),
            ),
        )
        self._arrays = self._opened()

    def _opened(self) -> Arrays:
        with self._as_stage(), reading(self._file):
            return Arrays(self._file)

    def _check_settings(self, device: Device) -> None:
        """Refuse a trace that was made with other settings than the suite has now."""
        there = self._about.settings
        if there is None:  # a dump, or a trace of an earlier version
            return
        now = settings_of(replace(device, target=None))
        for name in now.__struct_fields__:
            one, two = getattr(there, name), getattr(now, name)
            if one != two:
                msg = (
                    f"{self._file.name} was made with {name} = {json.dumps(one)}, and "
                    f"the suite has {json.dumps(two)} now; make the bundle again with "
                    "`parity bundle`, and run it there."
                )
                raise StageError(msg, outcome=Outcome.LOAD)

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Return the outputs of the sample that has these inputs."""
        self._sample = SAMPLE.get()
        if self._inputs:
            digest = digest_of(feeds)
            same = [name for name, one in self._inputs.items() if one == digest]
            # Samples with equal inputs may differ in whose layers were watched.
            if self._sample not in same:
                self._sample = same[0] if same else ""
        there = {value.name: value for value in self._of(OUTPUTS)}
        if not there:
            msg = (
                f"{self._file.name} has no outputs for these inputs; the suite's "
                "samples are others now. Make the bundle again with `parity bundle`."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
        return {
            name: self._array(there[name]) for name in self._outputs if name in there
        }

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Hand over each value of the sample that has these inputs."""
        made = self.run(feeds)
        for value in self._of(LAYERS):
            size = sizes.get(source_value(value.name))
            if size is None:  # nobody asked for it
                continue
            if size_of(value) > most_bytes(size):
                msg = (
                    f"{self._file.name} has the value {value.name!r} in the shape "
                    f"{list(value.shape)}, and PyTorch's has {size:,} bytes; run the "
                    "bundle again."
                )
                raise StageError(msg, outcome=Outcome.LOAD)
            one: Any = self._array(value)
            if value.sketched:
                one = Sketched(one, value.shape)
            on_value(value.name, one)
        return made

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Refuse: nothing runs here."""
        del feeds, given, on_value
        msg = f"{self._file.name} is a trace, so no operator can be run alone."
        raise StageError(msg, outcome=Outcome.RUN)

    def explained(
        self,
        rows: list[Row],
        opening: Opening,
        feeds: Mapping[str, Feeds],
        made: Mapping[str, Feeds],
    ) -> list[Row]:
        """Return rows with the wrong call of a dump as the pattern of its outputs.

        A bundle makes the calls of a session, so that they are right.
        """
        if self._inputs:
            return rows
        # Whoever verifies a card reads a trace too, and has no onnx.
        from harness.plugins.elsewhere.calls import with_wrong_call

        return with_wrong_call(rows, opening, feeds, made)

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def _array(self, value: Value) -> np.ndarray:
        with self._as_stage(), reading(self._file):
            return read_value(self._arrays, value)

    @contextmanager
    def _as_stage(self) -> Iterator[None]:
        try:
            yield
        except SuiteError as error:
            raise StageError(str(error), outcome=Outcome.LOAD) from error

    def _of(self, kind: str) -> list[Value]:
        return [
            value
            for value in self._about.values
            if value.kind == kind and value.sample == self._sample
        ]
