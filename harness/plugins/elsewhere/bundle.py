"""Write a bundle: the calls that a session makes of its runtime, to be made elsewhere.

A session runs once, and its calls are recorded with their arrays. So a bundle asks of
another machine just what a target would be asked, without a connection to it.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from harness.core.case import Case, Component, Device
from harness.core.entry import check_artifact
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.core.received import DamagedError
from harness.core.runtime import runtime
from harness.engine.deployed import Deployed
from harness.engine.engine import Engine
from harness.engine.host import report_progress
from harness.measure.align import wanted_values
from harness.measure.name_map import Names, as_given
from harness.measure.trace import load_inputs, open_trace
from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.form import LAYERS, OUTPUTS, bundle_of, settings_of
from harness.plugins.elsewhere.remote import sha256, source_of
from harness.plugins.elsewhere.traced import digest_of
from harness.runtimes.driving import Driving, Show, T, Values, recorded_by
from harness.runtimes.renamed import fed
from harness.runtimes.session import Feeds, open_session
from harness.suite.places import kind_of

_WRITE: Final = f"{__name__}:write_bundle"

_README = """\
{case}: run `python run.py` here, where Python 3.8, numpy and {packages} are installed.
It writes trace.npz; `parity judge trace.npz` beside the suite then judges this machine.
"""


class Recorder:
    """Records the calls of sessions into a folder.

    Attributes:
        kind: ``outputs`` or ``layers``, which the next calls show; empty for neither.
        sample: The sample that the next calls run.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kind = self.sample = ""
        self.calls: list[dict[str, Any]] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.files: dict[str, str] = {}
        self.entries: list[str] = []
        self.shown: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}

    def record(self, inner: Driving, files: Sequence[Path]) -> Driving:
        """Return what drives a runtime as `inner` does, and records its calls.

        Raises:
            StageError: Two of the files have one name.

        """
        into = f"model-{len(self.entries)}"
        (self._folder / into).mkdir()
        self.entries.append(files[0].parent.name)
        for path in files:
            name = f"{into}/{path.name}"
            if name in self.files:
                msg = (
                    f"{files[0].name} has weights in two files called {path.name}, and "
                    "a bundle has one folder; give the files other names."
                )
                raise StageError(msg, outcome=Outcome.LOAD)
            shutil.copyfile(path, self._folder / name)
            self.files[name] = sha256(path)
        return _Recorded(self, inner, into)

    def ref(self, name: str, value: np.ndarray) -> str:
        """Return where a call finds an array: shown before, or stored.

        Inputs are stored by sample and name, so that other programs can read them.
        """
        one, ref = self.shown.get(id(value), (None, ""))
        if one is not None and one() is value:
            return ref
        key = f"{self.sample}/{name}"
        if key in self.feeds and np.array_equal(self.feeds[key], value):
            return key
        if self.kind != OUTPUTS or key in self.feeds:
            key = f"calls/{len(self.feeds)}"
        self.feeds[key] = np.array(value, order="C")  # a page reads no other
        return key


class _Recorded(Driving):
    """A runtime whose calls are recorded."""

    def __init__(self, recorder: Recorder, inner: Driving, into: str) -> None:
        self._recorder, self._inner = recorder, inner
        self.version, self.about = inner.version, inner.about
        self.files = {name: f"bundle:{into}/{name}" for name in inner.files}
        self._real = {there: inner.files[name] for name, there in self.files.items()}
        # A session may also give the path of the folder.
        folder = Path(next(iter(inner.files.values()))).parent
        self._real[f"bundle:{into}"] = str(folder)

    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        shown, real = self._noted(do, feeds, show, said)
        return self._inner.call(do, feeds, shown, **real)

    def ask(
        self,
        do: str,
        kind: type[T],
        feeds: Feeds | None = None,
        values: Values | None = None,
        /,
        **said: Any,
    ) -> T:
        show = None if values is None else values.show
        shown, real = self._noted(do, feeds, show, said)
        if values is not None:
            values = replace(values, show=shown)
        return self._inner.ask(do, kind, feeds, values, **real)

    def _noted(
        self, do: str, feeds: Feeds | None, show: Show | None, said: dict[str, Any]
    ) -> tuple[Show, dict[str, Any]]:
        """Record a call; return what takes its values, and its arguments here."""
        recorder = self._recorder
        number = len(recorder.calls)
        recorder.calls.append(
            {
                "do": do,
                "said": said,
                "kind": recorder.kind,
                "sample": recorder.sample,
                "feeds": {k: recorder.ref(k, one) for k, one in (feeds or {}).items()},
            }
        )

        def shown(name: str, value: np.ndarray) -> None:
            recorder.shown[id(value)] = weakref.ref(value), f"{number}/{name}"
            if show is not None:
                show(name, value)

        real = {
            name: self._real.get(value, value) if isinstance(value, str) else value
            for name, value in said.items()
        }
        return shown, real

    def close(self) -> None:
        self._inner.close()


def bundled(engine: Engine, case: Case, into: Path, layers: str) -> str:
    """Write what another machine needs to run a case into an empty folder.

    `layers` is ``all`` values of layers, ``stats``, or ``outputs`` alone. This returns
    the digest of the first deployed file's entry, as a record has it.

    Raises:
        ParityError: A stage ended without an answer.

    """
    first, *_ = engine.run_task(case, _WRITE, into, layers, what="bundle")
    return first.key_digest


def write_bundle(  # noqa: PLR0917  # a task takes its arguments by position
    case: str,
    component: Component,
    device: Device,
    backend_name: str,
    deployed: Sequence[Deployed],
    into: Path,
    layers: str,
) -> None:
    """Run every sample once, and write what another machine needs to do the same.

    The runtime runs here, or on the device's target. `into` is an empty folder.
    `layers` is ``all``, ``stats``, or ``outputs`` for none.

    Raises:
        StageError: An artifact is damaged, or the runtime refuses it or the run.

    """
    declared = runtime(backend_name)
    recorder = Recorder(into)
    samples: dict[str, str] = {}
    outputs: list[str] = []
    for file in deployed:
        check_artifact(file.artifact)
        path = file.artifact.file(file.model)
        names = Names.load(path.parent)
        has = as_given(component, names)
        outputs = [spec.name for spec in has.outputs]
        probes = load_probes(file.probes)
        recorder.kind = ""
        with (
            recorded_by(recorder.record),
            open_session(backend_name, path, device, outputs) as opened,
        ):
            for reading in file.readings:
                report_progress("recording", case, reading.sample)
                feeds = load_inputs(reading.inputs, component)
                own = feeds if names is None else fed(names, feeds)
                samples[reading.sample] = digest_of(own)
                recorder.kind, recorder.sample = OUTPUTS, reading.sample
                opened.run(feeds)
                if not reading.layers or layers == OUTPUTS:
                    continue
                trace = open_trace(reading.reference.path)
                sizes = {
                    value: trace[probe.name].nbytes
                    for value, probe in wanted_values(probes).items()
                    if probe.name in trace
                }
                recorder.kind = LAYERS
                opened.watch(feeds, sizes, lambda _name, _value: None)
    said = {
        "format": bundle_run.FORMAT,
        "case": case,
        "layers": layers,
        "outputs": outputs,
        "samples": samples,
        "settings": settings_of(device),
        "files": recorder.files,
        "entries": recorder.entries,
        "calls": recorder.calls,
    }
    try:
        written = msgspec.json.encode(bundle_of(said, declared))
    except DamagedError as error:
        msg = f"{case} cannot be made a bundle: {error}."
        raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
    (into / bundle_run.CALLS).write_bytes(written)
    np.savez(into / bundle_run.FEEDS, **recorder.feeds)  # type: ignore[arg-type]
    kind = kind_of(device.target)
    if write := kind and kind.bundle:
        write(case, device, into)
        return
    into.joinpath("run.py").write_bytes(source_of(bundle_run.__name__))
    into.joinpath("driver.py").write_bytes(source_of(declared.driver))
    packages = " or ".join(declared.distributions)
    readme = _README.format(case=case, packages=packages)
    (into / "README.md").write_text(readme, encoding="utf-8")
