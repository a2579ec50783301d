"""--parity-require NAME,...: a runtime that is missing fails instead of skipping."""


def test_a_missing_runtime_is_skipped_with_its_reason(project):
    project.hide("MNN")

    ended = project.pytest("--parity-variant=fp32")

    assert ended.code == 0, ended.text
    assert ended.has("2 passed, 2 skipped")
    assert ended.has("1 of 1 case agrees")
    assert ended.has("1 case skipped: mnn is not installed (pip install MNN)")
    outcomes = {v["id"]: v["outcome"] for v in project.report["verdicts"]}
    assert outcomes["vae_decoder/mnn/fp32/outputs"] == "unavailable"


def test_a_run_in_which_everything_is_skipped_is_2(project):
    project.hide("MNN")

    ended = project.pytest("--parity-backend=mnn")

    assert ended.code == 2, ended.text
    assert ended.has("nothing was compared")


def test_a_missing_runtime_that_is_required_fails(project):
    project.hide("MNN")

    ended = project.pytest("--parity-variant=fp32", "--parity-require=onnxruntime,mnn")

    assert ended.code == 2, ended.text
    assert ended.has("2 failed, 2 passed")
    assert ended.has("vae_decoder/mnn/fp32   unavailable")


def test_an_unknown_runtime_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-require=mmn")

    assert ended.code == 4
    assert ended.has("--parity-require: there is no backend 'mmn'; did you mean 'mnn'?")
