"""Check a parity card: the same files, and outputs within its bounds on this machine.

It needs numpy and one runtime. Each case runs in a child process, by the script that a
bundle has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from msgspec import structs

from harness.core.errors import SuiteError
from harness.core.program import ProgramEnd, alone, ended
from harness.core.runtime import runtime
from harness.core.text import few, in_floors
from harness.judge.value import Verdict, judge
from harness.measure.compare import compare
from harness.measure.received_arrays import Arrays
from harness.plugins.card.form import Card, CardCase, Output, bundle_of, digest
from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.form import Value
from harness.plugins.elsewhere.traced import about, read_value, reading

YES, NO, SKIPPED, LISTED = "yes", "no", "not run", "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The end of a case: an answer, and the numbers or the reason as text."""

    case: str
    answer: str
    words: str


def chosen(card: Card, cases: Sequence[str]) -> list[CardCase]:
    """Return the cases of a card whose ids begin with one of these words.

    Raises:
        SuiteError: A word begins no id.

    """
    for word in cases:
        if not any(case.case.startswith(word) for case in card.cases):
            there = few([case.case for case in card.cases])
            msg = f"the card has no case {word!r}; it has {there}."
            raise SuiteError(msg)
    begins = tuple(cases) or ("",)
    return [case for case in card.cases if case.case.startswith(begins)]


def verify(
    cases: Sequence[CardCase],
    arrays: Mapping[str, np.ndarray],
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[Checked]:
    """Check each case of a card with the files of a folder.

    `arrays` are the card's inputs and right outputs. The folder has the deployed files
    at any depth, under any names. `say` receives the name of the next case.

    Raises:
        SuiteError: The folder is not there.

    """
    if not folder.is_dir():
        msg = f"{folder} is no folder; give the one that has the deployed files."
        raise SuiteError(msg)
    sizes = {file.size_bytes for case in cases for file in case.files}
    found = {
        digest(path): path.absolute()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size in sizes
    }
    for case in cases:
        say(case.case)
        answer, words = _checked(case, arrays, folder, found)
        yield Checked(case=case.case, answer=answer, words=words)


def _checked(
    case: CardCase,
    arrays: Mapping[str, np.ndarray],
    folder: Path,
    found: Mapping[str, Path],
) -> tuple[str, str]:
    """Return the answer to a case, and the numbers or the reason."""
    if not case.files:
        return LISTED, f"the card has no files of it; its author: {case.result}"
    lacking = [file for file in case.files if file.sha256 not in found]
    if lacking:
        first = lacking[0]
        return NO, (
            f"{folder} has no file of {first.size_bytes:,} bytes with the digest "
            f"{first.sha256[:12]}, which the card calls {Path(first.name).name}"
        )
    declared = runtime(case.backend)
    if not declared.is_installed:
        packages = " or ".join(declared.distributions)
        return SKIPPED, f"{declared.title} is not installed: pip install {packages}"
    with TemporaryDirectory(prefix="parity-verify-") as scratch:
        bundle, trace = Path(scratch, "bundle"), Path(scratch, "trace.npz")
        _assemble(bundle, case, arrays, found)
        done = _run(bundle, _source(declared.driver), trace)
        if done.code or not trace.is_file():
            return _failed(done, declared.title)
        told = about(trace)
        made = {(value.sample, value.name): value for value in told.values}
        with reading(trace), Arrays(trace) as values:
            verdicts = [
                _judged(output, arrays, made, values) for output in case.outputs
            ]
    worst = max(verdicts, key=lambda verdict: verdict.usage)
    floors = (verdict.comparison.floor_multiple for verdict in verdicts)
    here = [multiple for multiple in floors if multiple is not None]
    there = [output.floors for output in case.outputs if output.floors is not None]
    numbers = f"SQNR {min(v.comparison.sqnr_db for v in verdicts):.1f} dB here"
    if here and there:
        numbers = f"{in_floors(max(here))} here, {in_floors(max(there))} there"
    version = f"{declared.title} {told.version}"
    if told.version != case.version:
        version += f", {case.version} there"
    if worst.passed:
        return YES, f"{numbers} ({version})"
    return NO, f"{worst.outcome}: {worst.reason}; {numbers} ({version})"


def _failed(done: ProgramEnd, title: str) -> tuple[str, str]:
    """Return the answer of a script that wrote no trace, and the reason."""
    words = done.words if done.code else "no trace was written"
    if done.code != bundle_run.UNMET:
        return NO, f"{title} fails: {words}"
    said = done.text.partition(bundle_run.MARK)[2].splitlines()
    return SKIPPED, said[0] if said else words


def _judged(
    output: Output,
    arrays: Mapping[str, np.ndarray],
    made: Mapping[tuple[str, str], Value],
    values: Arrays,
) -> Verdict:
    """Judge one output; of one with another shape the shape alone is looked at."""
    expected = arrays[output.expected]
    actual, value = np.empty(0, expected.dtype), made.get((output.sample, output.given))
    if value is not None and value.shape == expected.shape:
        actual = read_value(values, value)
    elif value is not None:
        actual = np.broadcast_to(np.zeros((), value.dtype), value.shape)
    found = compare(
        expected=expected,
        actual=actual,
        floor_rms=output.floor_rms,
    )
    own = None
    if output.own_rms is not None:
        own = structs.replace(found, rms=output.own_rms, nonfinite_mismatched=0)
    return judge(
        found,
        output.tolerance,
        is_output=True,
        own=own,
        allow_nonfinite=found.nonfinite_expected > 0,
        allow_constant=found.expected_constant,
        # Whole numbers that differed there passed there, so the suite lets them.
        allow_misread=output.max_abs >= 1.0,
    )


def _assemble(
    bundle: Path,
    case: CardCase,
    arrays: Mapping[str, np.ndarray],
    found: Mapping[str, Path],
) -> None:
    """Write the calls, their inputs and the files into a new folder.

    Only this process's user can enter the folder. `load_card` lets no file have another
    name than the runtime's own. Everything is made where nothing is yet, so that no
    text is written through a link to a file of the receiver's.
    """
    bundle.mkdir(mode=0o700)
    for one in case.files:
        path = bundle / one.name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            path.symlink_to(found[one.sha256])
        except OSError:  # a system may not let everybody make links
            with found[one.sha256].open("rb") as file, path.open("xb") as copy:
                shutil.copyfileobj(file, copy)
    with bundle.joinpath(bundle_run.CALLS).open("xb") as file:
        file.write(msgspec.json.encode(bundle_of(case)))
    feeds = {name: arrays[key] for name, key in case.feeds.items()}
    with bundle.joinpath(bundle_run.FEEDS).open("xb") as file:
        np.savez(file, allow_pickle=False, **feeds)


_CHILD = """
import runpy, sys
from pathlib import Path
script, folder, driver, out = sys.argv[1:]
write_trace = runpy.run_path(script)["write_trace"]
write_trace(Path(folder), Path(driver), Path(out), "here")
"""


def _run(bundle: Path, driver: Path, trace: Path) -> ProgramEnd:
    """Run a bundle in a new process, and return how it ended.

    The script and the driver are those of this harness, and no file of a card lies
    beside them or where the process works.
    """
    places = map(str, (_source(bundle_run.__name__), bundle, driver, trace))
    with TemporaryDirectory(prefix="parity-verify-") as empty:
        return ended(alone("-c", _CHILD, *places), Path(empty))


def _source(module: str) -> Path:
    """Return the file of a module of the harness."""
    spec = find_spec(module)
    assert spec is not None  # noqa: S101  # it is the harness's own
    assert spec.origin is not None  # noqa: S101  # as above
    return Path(spec.origin)
