"""A session whose values come from a trace: of a bundle, or of somebody's own program.

The trace has what a runtime showed elsewhere. So a run there is aligned, compared and
judged as one from here.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from msgspec import structs

from harness.core.case import Device
from harness.core.comparison import Comparison
from harness.core.errors import StageError, SuiteError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.measure.align import same_axes
from harness.measure.compare import compare
from harness.runtimes.session import SAMPLE, Feeds, OnValue, Ran
from harness.runtimes.target import bundle_run
from harness.runtimes.target.drive import sha256

OUTPUTS, LAYERS = bundle_run.OUTPUTS, "layers"

DAMAGED = (
    *(ValueError, KeyError, TypeError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, TokenError),
)
"""Errors of an .npz file that is damaged, or that is something else."""


@dataclass(frozen=True, slots=True)
class Sketched:
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
def _reading(path: Path) -> Iterator[None]:
    """Say in a sentence that a trace cannot be read."""
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror or error})."
        raise SuiteError(msg) from error
    except DAMAGED as error:
        msg = (
            f"{path} is no trace, or is damaged ({error}); run the bundle's run.py "
            "again and copy the file whole."
        )
        raise SuiteError(msg) from error


def about(path: Path) -> dict[str, Any]:
    """Return what a trace says about itself.

    Raises:
        SuiteError: The file is no trace, is damaged, or has another format.

    """
    with _reading(path), np.load(path, allow_pickle=False) as arrays:
        told: dict[str, Any] = json.loads(arrays["about"].tobytes().decode())
        known = told["format"]
        lacking = {v["array"] for v in told["values"]} - set(arrays.files)
    if known != bundle_run.FORMAT:
        msg = (
            f"{path} has format {known}, and this harness reads "
            f"{bundle_run.FORMAT}; make the bundle again with `parity bundle`."
        )
        raise SuiteError(msg)
    if lacking:
        msg = f"{path} lacks {len(lacking)} of its values; copy the file again."
        raise SuiteError(msg)
    return told


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
        self._inputs: dict[str, str] = self._about["samples"]
        self._sample = ""
        self._arrays = np.load(self._file, allow_pickle=False)
        files = set(self._about["files"].values())
        # A conversion that is made again may have other bytes and mean the same.
        beside = path.parent.glob(f"{path.name}.*")  # weights outside of the graph
        own = [path, *(one for one in beside if one.is_file())]
        same = path.parent.name in self._about["entries"] or all(
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
        os.write(2, self._about["log"].encode())
        self.ran = Ran(
            backend=backend,
            version=self._about["version"],
            device=device.device,
            threads=device.threads,
            precision=device.precision if declared.precisions else "float32",
            detail=(
                ("target", device.target.name),
                ("machine", self._about["machine"]),
                ("trace", self._file.name),
            ),
        )

    def _check_settings(self, device: Device) -> None:
        """Refuse a trace that was made with other settings than the suite has now."""
        there = self._about.get("settings")
        if there is None:  # a dump, or a trace of an earlier version
            return
        now = json.loads(json.dumps(replace(device, target=None).settings))
        for name in {**there, **now}:
            one, two = there.get(name), now.get(name)
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
        made = {value["name"]: self._array(value) for value in self._of(OUTPUTS)}
        if not made:
            msg = (
                f"{self._file.name} has no outputs for these inputs; the suite's "
                "samples are others now. Make the bundle again with `parity bundle`."
            )
            raise StageError(msg, outcome=Outcome.LOAD)
        return {name: made[name] for name in self._outputs if name in made}

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Hand over each value of the sample that has these inputs."""
        del sizes
        made = self.run(feeds)
        for value in self._of(LAYERS):
            one: Any = self._array(value)
            if value["sketched"]:
                one = Sketched(one, tuple(value["shape"]))
            on_value(value["name"], one)
        return made

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Refuse: nothing runs here."""
        del feeds, given, on_value
        msg = f"{self._file.name} is a trace, so no operator can be run alone."
        raise StageError(msg, outcome=Outcome.RUN)

    def __exit__(self, *_: object) -> None:
        self._arrays.close()

    def _array(self, value: Mapping[str, Any]) -> np.ndarray:
        try:
            with _reading(self._file):
                array: np.ndarray = self._arrays[value["array"]]
        except SuiteError as error:
            raise StageError(str(error), outcome=Outcome.LOAD) from error
        return array

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [
            value
            for value in self._about["values"]
            if value["kind"] == kind and value["sample"] == self._sample
        ]
