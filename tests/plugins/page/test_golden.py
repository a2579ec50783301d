"""The words of a run's page, in golden files.

`pytest tests/plugins/page/test_golden.py --snapshot-update` writes them again.
"""

import pytest

from harness.plugins.page.page import page_of, rendered
from tests.unit.pages import words
from tests.unit.scenes import SCENES, scene


@pytest.mark.parametrize("name", SCENES)
def test_a_page_has_these_words(name, tmp_path, snapshot):
    assert words(rendered(page_of(scene(name, tmp_path)), tmp_path)) == snapshot
