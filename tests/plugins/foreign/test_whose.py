"""A file that belongs to another component is known by its names."""

from harness.plugins.foreign.files.tables import whose_file
from tests.unit.recipes.test_decoder import STEP, part


def test_a_file_with_a_cache_is_known_to_be_of_the_step(tmp_path):
    step, other = part(tmp_path), part(tmp_path, "default")

    assert whose_file(other, step.inputs, step.outputs) == STEP
