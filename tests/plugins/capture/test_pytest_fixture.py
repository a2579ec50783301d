"""`parity_check` in a test joins the run's report, and works where xdist divides."""

pytest_plugins = ("pytester",)

TESTS = """
import torch

def net():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval()

def test_agrees(parity_check):
    assert parity_check(net(), (torch.randn(2, 4),), runtimes=["onnxruntime"]).passed

def test_is_refused(parity_check):
    parity_check(net().train(), (torch.randn(2, 4),))
"""


def test_two_tests_make_one_report(pytester, shared_store, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(shared_store))
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_subprocess("-q")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["*Linear is in training mode*", "*1 of 1 case agrees*"])

    assert len(list(pytester.path.glob("reports/runs/*/report.json"))) == 1


def test_a_worker_of_xdist_makes_a_run_of_its_own(pytester, shared_store, monkeypatch):
    monkeypatch.setenv("PARITY_STORE", str(shared_store))
    pytester.makepyfile(TESTS)
    ran = pytester.runpytest_subprocess("-q", "-n", "2", "-k", "agrees")
    ran.assert_outcomes(passed=1)
