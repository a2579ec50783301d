"""--parity-backend NAME,...: only these backends."""


def test_a_word_no_suite_has_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-backend=mn")

    assert ended.code == 4
    assert ended.has("--parity-backend: there is no backend 'mn'; did you mean 'mnn'?")


def test_only_that_backend_is_collected(project):
    ended = project.pytest("--parity-backend=onnxruntime", "--collect-only", "-q")

    assert ended.has("2/6 tests collected (4 deselected)")
    assert not ended.has("/mnn/")


def test_several_are_given_with_commas(project):
    ended = project.pytest("--parity-backend=onnxruntime,mnn", "--collect-only", "-q")

    assert ended.has("6 tests collected")


def test_one_that_the_suite_has_but_k_leaves_out_is_no_usage_error(project):
    ended = project.pytest("--parity-backend=mnn", "-k", "onnxruntime")

    assert ended.code == 5
