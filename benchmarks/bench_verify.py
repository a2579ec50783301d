"""Time `parity verify` of a card of digits, where one runtime alone is installed.

    python benchmarks/bench_verify.py [--store DIR] [--write]

It runs the components of fixtures/digits, makes a card, and copies the files that the
card names. Then it makes an environment for each runtime: the base install and this
runtime. There it checks the cases of this runtime twice. The first check compiles the
comparison. To reach: a minute for the first check.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures

from harness.core.runtime import runtime
from harness.engine.run import open_store
from harness.plugins.card.form import digest, load_card
from harness.suite.suite import load_suite

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "fixtures" / "digits"
ALONE = {"onnxruntime": "onnxruntime", "mnn": "MNN"}
"""Runtime to the package that an environment gets beside the base install."""


def called(*command, cwd=None):
    """Run a command to its end; return its time and what it printed.

    The time has seconds of waiting, and seconds of all processors.
    """
    # Each environment has the harness that is installed there.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    how = {"cwd": cwd, "env": clean, "stdout": subprocess.PIPE, "text": True}
    began, used = time.perf_counter(), processor_s()
    done = subprocess.run([*map(str, command)], check=True, **how)
    took = {"s": time.perf_counter() - began, "processor s": processor_s() - used}
    return {name: round(value, 1) for name, value in took.items()}, done.stdout


def processor_s():
    """Return the processor time of all children that have ended, in seconds."""
    used = os.times()
    return used.children_user + used.children_system


def card_of_digits(folder, store):
    """Make a card of a run of digits' components, and a folder with its files."""
    parity = (sys.executable, "-m", "harness")
    names = dict.fromkeys(case.component.name for case in load_suite(DIGITS).cases)
    called(*parity, "run", *names, "--suite", DIGITS, *store, cwd=folder)
    called(*parity, "card", *store, cwd=folder)
    card, _ = load_card(folder / "card")
    wanted = {file.sha256: file for case in card.cases for file in case.files}
    sizes = {file.size_bytes for file in wanted.values()}
    ship = folder / "ship"
    ship.mkdir()
    for path in open_store(store[1] if store else "").root.rglob("*"):
        if path.is_file() and path.stat().st_size in sizes:
            name = digest(path)
            if name in wanted:
                shutil.copy(path, ship / f"{name}{path.suffix}")
    return card


def timed(backend, package, card, folder):
    """Return cases, seconds of two checks and MB of an environment of its own."""
    home = folder / backend
    called(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    empty = size_of(home)
    pins = ("--constraint", ROOT / "constraints.txt")
    called(python, "-m", "pip", "install", "-q", *pins, ROOT, package, cwd=folder)
    installed = size_of(home) - empty
    cases = [case.case for case in card.cases if case.files and case.backend == backend]
    verify = (home / "bin" / "parity", "verify", "card", "ship", *cases)
    (first, said), (again, _) = (called(*verify, cwd=folder) for _ in range(2))
    print(said, flush=True)
    row = {"cases": len(cases), "first": first, "again": again}
    return row | {"installed MB": round(installed / 1e6)}


def size_of(folder):
    """Return the bytes of all files of a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def main():
    parser = figures.parser(__doc__)
    parser.add_argument("--store", default="", help="where deployed files are kept")
    given = parser.parse_args()
    store = ("--store", str(Path(given.store).absolute())) if given.store else ()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        card = card_of_digits(folder, store)
        size_mb = size_of(folder / "card") / 1e6
        rows = {name: timed(name, ALONE[name], card, folder) for name in ALONE}
    words = [
        f"{runtime(name).title}: {row['cases']} cases in {row['first']['s']} s, and in "
        f"{row['again']['s']} s the second time ({row['first']['processor s']} and "
        f"{row['again']['processor s']} s of processor time); "
        f"{row['installed MB']} MB installed"
        for name, row in rows.items()
    ]
    print(f"card of {size_mb:.1f} MB", *words, sep="\n")
    if given.write:
        figures.keep(
            "verify",
            script=__file__,
            what="`parity verify` of a card of digits, with the base install and one "
            "runtime; the first check compiles the comparison",
            measured="; ".join(words),
            values=rows,
            code=["plugins/card", "measure"],
        )


if __name__ == "__main__":
    main()
