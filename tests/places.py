"""The folders of this repository that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
DIGITS = FIXTURES / "digits"
EXPORTED = FIXTURES / "exported"
