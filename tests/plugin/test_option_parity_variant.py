"""--parity-variant NAME,...: only these variants."""


def test_a_word_no_suite_has_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-variant=fp23")

    assert ended.code == 4
    assert ended.has(
        "--parity-variant: there is no variant 'fp23'; did you mean 'fp32'?"
    )


def test_only_that_variant_is_collected(project):
    ended = project.pytest("--parity-variant=int8-weights", "--collect-only", "-q")

    assert ended.has("2/6 tests collected (4 deselected)")
    assert not ended.has("/fp32/")
