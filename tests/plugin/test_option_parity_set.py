"""--parity-set BOUND=VALUE: change one bound of every tolerance."""


def test_a_bound_that_is_set_is_the_one_that_counts(quick):
    ended = quick.pytest("--parity-set=floors=0.001")

    assert ended.code == 1, ended.text
    assert ended.has("floors, allowed 0.001")


def test_an_unknown_bound_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-set=floor=3")

    assert ended.code == 4
    assert ended.has("--parity-set: unknown bound 'floor'; did you mean 'floors'?")
