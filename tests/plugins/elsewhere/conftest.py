"""Fixtures of sessions, as the runtimes' own tests have them."""

from tests.unit.conftest import blocks_files, native
from tests.unit.runtimes.conftest import feeds, job, mnn_file

__all__ = ["blocks_files", "feeds", "job", "mnn_file", "native"]
