"""The score's own pieces: what is counted, and the peers' rules by hand values."""

import numpy as np
import pytest

from harness.core.environment import environment
from tests.faults import elsewhere
from tests.faults.catalogue import FAULTS
from tests.faults.catalogue.fault import FAMILIES, Fault, InModule
from tests.faults.clean import CleanRun
from tests.faults.peers import PEERS, tells
from tests.faults.score import Result, missed, table

SILENT = dict.fromkeys(PEERS, False)
NOWHERE = dict.fromkeys((*FAMILIES, "all"), ("–", "–"))
"""Nothing was caught on other machines, nor in rewritten files."""


def result(**fields):
    about = {
        "fault": "x",
        "family": "operator",
        "backend": "mnn",
        "caught": True,
        "places": ("gelu",),
        "localised": True,
        "explained": True,
        "wrong": (),
        "said": "",
        "peers": SILENT,
        "took_s": 1.0,
    }
    return Result(**{**about, **fields})


def test_there_are_enough_faults_and_each_has_a_name_of_its_own():
    assert len(FAULTS) >= 60
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {fault.family for fault in FAULTS} == set(FAMILIES)


def test_what_has_no_place_is_not_counted_as_localised():
    score = table([result(), result(places=(), localised=False)], [], NOWHERE)

    assert "| 1 | 2 | 2 (100 %) | 1 | 1 (100 %) | 2 (100 %) | 0 (0 %) |" in score


def test_almost_all_is_not_a_hundred_percent():
    score = table([result()] * 299 + [result(caught=False)], [], NOWHERE)

    assert "299 (99 %)" in score


def test_machines_are_counted_together_and_shown_one_by_one(monkeypatch, tmp_path):
    monkeypatch.setattr(elsewhere, "MACHINES", tmp_path / "machines.json")
    run = {"suite": "bert", "case": "c", "sample": "s", "reference": "r", "alarm": ""}

    elsewhere.note_clean("one", [run, {**run, "suite": "init-bert"}])
    elsewhere.note_clean("two", [{**run, "alarm": "exceeds"}])
    elsewhere.note_faults("two", [result(), result(caught=False)])

    lines = elsewhere.text().splitlines()
    here = environment().cpu
    assert f"| one | {here} | 2 | 1 | 0 | – |" in lines
    assert f"| two | {here} | 1 | 0 | 1 | 1 (50 %) |" in lines
    assert "| all | – | 3 | 1 | 1 | 1 (50 %) |" in lines
    assert elsewhere.caught_elsewhere("operator") == "1 of 2"
    assert elsewhere.caught_elsewhere("export") == "–"


def test_what_fell_short_is_named():
    alarm = CleanRun(id="unet/mnn", alarm="exceeds", peers=SILENT)

    lines = missed([result(explained=False, wrong=("rounding",))], [alarm])

    assert lines.splitlines() == [
        "- Not explained: x (mnn).",
        "- Wrong words: x (mnn): rounding.",
        "- False alarm: unet/mnn.",
    ]


@pytest.mark.parametrize(
    ("looks", "wrong"),
    [
        ("each channel is off: a bias", []),
        ("spread like noise: rounding", ["spread like noise: rounding"]),
        ("channel 5 alone is off; it is ReLU of linear", ["it is ReLU of linear"]),
    ],
)
def test_a_clause_that_is_not_true_of_the_fault_is_wrong(looks, wrong):
    fault = Fault(
        name="x",
        family="operator",
        plant=InModule(),
        expects=("a bias",),
        also=("channel 5",),
    )

    assert [c for c in looks.split("; ") if not fault.allows(c)] == wrong


@pytest.mark.parametrize(
    ("rule", "error", "refused"),
    [
        ("numpy.allclose", 2e-5, True),
        ("numpy.allclose", 0.5e-5, False),
        ("allclose rtol 1e-3, atol 1e-5", 0.5e-3, False),
        ("optimum's atol", 0.9e-3, False),
        ("optimum's atol", 1.2e-3, True),
        ("Polygraphy's default", 2e-5, True),
        ("MNN's 1 %", 0.009, False),
        ("MNN's 1 %", 0.011, True),
        ("cosine 0.999", 1.0, False),
        ("PSNR 35 dB", 0.015, False),
        ("PSNR 35 dB", 0.02, True),
    ],
)
def test_a_peer_refuses_what_is_beyond_its_bound(rule, error, refused):
    """All values are 1 and off by the same: cosine sees nothing of that."""
    expected = {"out": np.ones((2, 3), np.float32)}
    actual = {"out": np.full((2, 3), 1 + error, np.float32)}

    assert tells(rule, "unet", expected, actual) is refused


@pytest.mark.parametrize("rule", sorted(PEERS))
def test_a_peer_sees_a_lost_output_and_another_shape(rule):
    expected = {"out": np.ones((2, 3), np.float32)}

    assert tells(rule, "unet", expected, {})
    assert tells(rule, "unet", expected, {"out": np.ones((3, 2), np.float32)})


def test_nan_passes_apples_rule_and_no_other():
    expected = {"out": np.ones(4, np.float32)}
    actual = {"out": np.array([1, 1, np.nan, 1], np.float32)}

    silent = [name for name in PEERS if not tells(name, "unet", expected, actual)]

    assert silent == ["PSNR 35 dB"]
