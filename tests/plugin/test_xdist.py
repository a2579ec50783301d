"""`pytest -n 2` refuses parity tests in one sentence, and runs all others."""

import pytest


@pytest.mark.parametrize("more", [(), ("-m", "parity", "--parity-backend=mnn")])
def test_parity_tests_are_refused_in_one_sentence(quick, more):
    ended = quick.start_pytest("-n", "2", *more)

    ended.check(4, "ERROR: -n: parity tests run their cases at once by themselves")
    assert ended.text.count("leave out -n") == 1
    assert not ended.has("Traceback")
    assert not ended.has("INTERNALERROR")
    assert quick.reports == []


def test_other_tests_run_without_them(quick):
    (quick.path / "test_other.py").write_text("def test_other():\n    pass\n")

    quick.start_pytest("-n", "2", "-m", "not parity").check(0, "1 passed")
