"""Write what `parity init` writes: all of its files or none, over nothing unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.core.errors import SuiteError
from harness.suite.schema import schemas

_SCHEMA = "parity.schema.json"
_FILES = ("parity.toml", "tolerances.toml", _SCHEMA, "test_parity.py")

# A language server of TOML reads this line. The schema lies beside the suite, so that
# the line is right on every machine, without a network, and for this version.
_HEAD = f"#:schema ./{_SCHEMA}\n"

_TEST = '''\
"""Parity of the deployed models with PyTorch: `pytest -m parity`."""

from pathlib import Path

import pytest

from harness.suite.suite import load_suite

SUITE = load_suite(Path(__file__).parent / "parity.toml")


@pytest.mark.parity
@pytest.mark.parametrize("check", SUITE.checks())
def test_parity(check, parity):
    parity.require(check)
'''


def refuse_written(folder: Path, *, force: bool) -> None:
    """Refuse a folder that has a suite already.

    Raises:
        SuiteError: A file would be written over and `force` is not given, or a folder
            is in the way.

    """
    for name in _FILES:
        if (folder / name).is_dir():
            msg = f"{folder / name} is a folder; a file is to be written there."
            raise SuiteError(msg)
    there = [name for name in _FILES if os.path.lexists(folder / name)]
    if there and not force:
        msg = (
            f"{folder} has {', '.join(there)} already; use --force to write over, or "
            "give another folder."
        )
        raise SuiteError(msg)


def write_files(folder: Path, suite: str, tolerances: str) -> list[Path]:
    """Write a suite with its schema, tolerances and a pytest file; return their paths.

    Raises:
        SuiteError: The folder cannot be written to.

    """
    try:
        texts = (_HEAD + suite, tolerances, schemas()[_SCHEMA], _TEST)
        return _write_all(folder, dict(zip(_FILES, texts, strict=True)))
    except OSError as error:
        msg = f"{folder} cannot be written to: {error.strerror}."
        raise SuiteError(msg) from error


def _write_all(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write the files under other names first, so that there are all or none."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in texts]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".parity-init-") as beside:
        for name, text in texts.items():
            (Path(beside) / name).write_text(text, encoding="utf-8", newline="\n")
        for path in paths:
            (Path(beside) / path.name).replace(path)
    return paths
