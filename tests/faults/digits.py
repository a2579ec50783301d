"""Digits as the catalogue sees it: layers at both batch sizes, and two threads.

The fixture itself compares layers at one batch size, to keep its store small. The
catalogue asks what the harness finds in a suite as `parity init` writes it.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.places import DIGITS

_SUITE = "parity.toml"
_CHANGES = (("layers = false", "layers = true"), ("threads = 1", "threads = 2"))


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return a folder with digits' files and a changed suite, for this process."""
    folder = TemporaryDirectory(prefix="parity-digits-")
    for path in DIGITS.iterdir():
        if path.name != _SUITE:
            Path(folder.name, path.name).symlink_to(path)
    text = (DIGITS / _SUITE).read_text(encoding="utf-8")
    for old, new in _CHANGES:
        assert old in text
        text = text.replace(old, new)
    Path(folder.name, _SUITE).write_text(text, encoding="utf-8")
    return folder


def watched_digits() -> Path:
    """Return the folder of the suite; it is there as long as this process."""
    return Path(_folder().name)
