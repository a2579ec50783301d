"""Run a bundle: what a harness asked of a runtime, asked again on this machine.

    python run.py [--name NAME] [--out trace.npz]

The file needs Python 3.8, numpy and the runtime, and imports nothing else. It writes
one file, which `parity judge` takes.
"""

import sys

# Python looks for modules beside a program first. What lies here by chance, such as
# numpy.py or __future__.py, must not be imported in their place.
if __name__ == "__main__" and not (
    sys.flags.isolated or getattr(sys.flags, "safe_path", False)
):
    del sys.path[0]

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

FORMAT = 1
CALLS = "bundle.json"
FEEDS = "feeds.npz"
OUTPUTS = "outputs"
"""Calls that show outputs; a bundle with this for its layers shows no others."""

BUCKETS = 128
"""Numbers that a sketch keeps of a value."""

FEW = 8
"""Numbers that a mask has at most: sums of several masks have more than two."""

SEED = 20260101

UNMET = 77
"""Exit code where the runtime runs, and not on what was asked for."""

MARK = "not run: "
"""What the line with the reason begins with; native code may print lines after it."""

_LOG_BYTES = 16384
"""How much is kept of the beginning of what native code prints, and of its end."""


def sketch(value: np.ndarray) -> np.ndarray:
    """Return a value's sketch: float32 ``[BUCKETS]``.

    Each element is added to one drawn bucket with a drawn sign (count sketch: Charikar,
    Chen, Farach-Colton, 2002). It is linear, so the sketch of a difference is the
    difference of sketches, and its rms is near that of the difference.
    """
    flat = value.reshape(-1).astype(np.float64)
    drawn = np.random.RandomState(SEED).randint(0, 2 * BUCKETS, flat.size)
    signed = np.where(drawn & 1, flat, -flat)
    sums = np.bincount(drawn >> 1, weights=signed, minlength=BUCKETS)
    scaled = sums / np.sqrt(max(flat.size / BUCKETS, 1.0))
    # Its rounding is as small as that of the value's own elements.
    return scaled.astype(np.float32)


def is_sketched(value: np.ndarray) -> bool:
    """Whether a sketch is smaller than the value by enough to matter.

    A value of few numbers, such as a mask, is as small when it is compressed.
    """
    some = value.reshape(-1)[:: max(1, value.size // 4096)]
    return value.size > 8 * BUCKETS and np.unique(some).size > FEW


class UnmetError(Exception):
    """The runtime took another device than the one that was asked for."""


class BundleTrace:
    """Collects what a runtime shows, by sample."""

    def __init__(self, outputs: List[str], *, whole: bool) -> None:
        self._outputs, self._whole = outputs, whole
        self.arrays: Dict[str, np.ndarray] = {}
        self.values: List[Dict[str, Any]] = []

    def add(self, kind: str, sample: str, name: str, value: np.ndarray) -> None:
        """Keep a value, or its sketch."""
        short = not self._whole and kind == "layers" and name not in self._outputs
        short = short and is_sketched(value)
        key = f"v{len(self.values)}"
        self.arrays[key] = sketch(value) if short else np.array(value)
        self.values.append(
            {
                "kind": kind,
                "sample": sample,
                "name": name,
                "array": key,
                "shape": list(value.shape),
                "dtype": value.dtype.str,
                "sketched": short,
            }
        )

    def save(self, out: Path, about: Mapping[str, Any]) -> None:
        """Write the values, and what the trace says about itself."""
        text = json.dumps({**about, "format": FORMAT, "values": self.values})
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        # Whole values hardly become smaller, and there are many megabytes of them.
        save: Any = np.savez if self._whole else np.savez_compressed
        with out.open("wb") as file:
            save(file, about=data, **self.arrays)


def run(folder: Path, driver: Any) -> Tuple[BundleTrace, Dict[str, Any]]:
    """Make a bundle's calls with a driver; return the values and the bundle's facts.

    Raises:
        UnmetError: The runtime does not run on what was asked for.

    """
    said = json.loads(folder.joinpath(CALLS).read_text(encoding="utf-8"))  # noqa: TID251  # a device has numpy alone
    if said["format"] != FORMAT:
        sys.exit("This bundle has another format; make it again with `parity bundle`.")
    feeds = np.load(str(folder / FEEDS), allow_pickle=False)  # noqa: TID251  # as above
    for name, digest in said["files"].items():
        seen = hashlib.sha256()
        # A phone may have less memory free than the file is large.
        with (folder / name).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                seen.update(block)
        if seen.hexdigest() != digest:
            sys.exit(f"{name} is not the file of this bundle; copy it again.")
    trace = BundleTrace(said["outputs"], whole=said["layers"] == "all")
    shown: Dict[str, np.ndarray] = {}
    needed = {ref for call in said["calls"] for ref in call["feeds"].values()}
    for number, call in enumerate(said["calls"]):

        def show(name: str, value: np.ndarray, number: int = number) -> None:
            ref = f"{number}/{name}"
            if ref in needed:  # a later piece of the graph reads it
                shown[ref] = np.array(value)
            kind = said["calls"][number]["kind"]
            if kind:
                trace.add(kind, said["calls"][number]["sample"], name, value)

        given = {
            name: shown[ref] if ref in shown else feeds[ref]
            for name, ref in call["feeds"].items()
        }
        words = {
            name: str(folder / value[7:])
            if isinstance(value, str) and value.startswith("bundle:")
            else value
            for name, value in call["said"].items()
        }
        told = getattr(driver, call["do"])(given, show, **words)
        _check(driver, call["do"], words, told)
    return trace, said


def _check(driver: Any, do: str, asked: Mapping[str, Any], told: Any) -> None:
    """Refuse what a call returned: another device, or an error code."""
    if do == "open":
        unmet = driver.unmet(asked, told)
        if unmet:
            raise UnmetError(unmet)
    elif do in ("run", "watch") and told and told["code"]:
        sys.exit(f"The runtime ends its run with the error code {told['code']}.")


@contextlib.contextmanager
def native_log() -> Iterator[List[str]]:
    """Keep what native code prints: a runtime says there what it really does."""
    kept: List[str] = []
    with tempfile.TemporaryFile() as file:
        ours = os.dup(1), os.dup(2)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield kept
        finally:
            os.dup2(ours[0], 1)
            os.dup2(ours[1], 2)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = file.read(2 * _LOG_BYTES)
            if size > len(text):  # what a processor has is said first
                file.seek(size - _LOG_BYTES)
                text = text[:_LOG_BYTES] + b"\n...\n" + file.read(_LOG_BYTES)
            kept.append(text.decode(errors="replace"))
            os.write(2, kept[0].encode())


def load_driver(file: Path) -> Any:
    """Return the driver in a file. Modules beside the file are not imported."""
    spec = importlib.util.spec_from_file_location("driver", str(file))  # noqa: TID251  # the driver that came with this script
    assert spec is not None  # noqa: S101  # the file's name ends in .py
    assert spec.loader is not None  # noqa: S101  # as above
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.open_driver()


def write_trace(folder: Path, driver_file: Path, out: Path, name: str) -> None:
    """Run the bundle in a folder with a driver, and write the trace to `out`.

    `name` is that of the device, which ids then have.
    """
    try:
        with native_log() as log:
            driver = load_driver(driver_file)
            trace, said = run(folder, driver)
    except UnmetError as error:
        sys.stderr.write(f"{MARK}{error}\n")
        sys.exit(UNMET)
    about = {
        "name": name,
        "case": said["case"],
        "files": said["files"],
        "entries": said["entries"],
        "samples": said["samples"],
        "settings": said.get("settings"),  # an earlier card has none
        "layers": said["layers"],
        "version": driver.version,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "log": log[0],
    }
    trace.save(out, about)


def main() -> None:
    """Run the bundle beside this file, and write the trace."""
    parser = argparse.ArgumentParser(description="Run this bundle and write its trace.")
    parser.add_argument("--name", default=platform.machine().lower().replace("_", "-"))
    parser.add_argument("--out", default="trace.npz")
    asked = parser.parse_args()
    folder, out = Path(__file__).resolve().parent, Path(asked.out)
    write_trace(folder, folder / "driver.py", out, asked.name)
    sys.stdout.write(f"wrote {out} ({out.stat().st_size / 2**20:.1f} MB)\n")
    sys.stdout.write(f"next  parity judge {out}, beside the suite\n")


if __name__ == "__main__":
    main()
