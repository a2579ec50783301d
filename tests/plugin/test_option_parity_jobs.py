"""--parity-jobs N: cases in progress at once."""

import pytest


@pytest.mark.parametrize("jobs", ["0", "two"])
def test_what_is_no_number_of_jobs_is_a_usage_error(quick, jobs):
    ended = quick.pytest(f"--parity-jobs={jobs}")

    assert ended.code == 4
    assert ended.has(f"--parity-jobs: takes a whole number from 1, got '{jobs}'.")


def test_a_number_is_taken(quick):
    assert quick.pytest("--parity-jobs=1", "-k", "outputs").code == 0
