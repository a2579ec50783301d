"""Two suites in one run may have the same cases; they are kept apart."""

from tests.plugin.project import Project, write_project

CASE = "vae_decoder/onnxruntime/fp32"


def test_each_case_is_judged_by_its_own_suite(quick):
    for name in ("tight", "loose"):
        write_project(quick.path / name)
        for file in ("parity.toml", "tolerances.toml"):
            (quick.path / name / file).write_text((quick.path / file).read_text())
        test = quick.path / name / "test_parity.py"
        test.rename(test.with_name(f"test_{name}.py"))
    Project(quick.path / "tight").tighten("[onnxruntime.fp32]")

    ended = quick.pytest("tight", "loose")

    assert ended.code == 1, ended.text
    assert ended.has("2 failed, 2 passed")
    assert ended.parity[0].startswith(f" ✗ tight:{CASE}")
    assert ended.has(" 1 of 2 cases agree. ")
    assert ended.has(f"parity show {quick.reports[0].parent.name} tight:{CASE}")
    shown = quick.parity("show", "last", f"tight:{CASE}")
    assert shown.code == 1, shown.text
    assert quick.parity("show", "last", f"loose:{CASE}").code == 0
