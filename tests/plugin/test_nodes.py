"""`parity nodes` shows a run's case on the graph in Model Explorer."""

import json

from tests.plugin.project import CASES

CASE = CASES[1]


def test_a_case_s_nodes_are_the_values_of_its_program(failing, tmp_path):
    project, _ = failing
    out = tmp_path / "nodes.json"

    ended = project.parity("nodes", "last", CASE, "--out", str(out))

    results = json.loads(out.read_text())["results"]
    (record,) = (one for one in project.report["cases"] if one["case"] == CASE)
    assert (ended.code, ended.text.strip()) == (0, str(out))
    assert set(results) == set(record["probes"]["probe"])


def test_a_case_that_is_not_there_is_named_with_its_nearest(failing):
    ended = failing[0].parity("nodes", "last", "vae_decoder/mnn/fp31")

    assert ended.code == 2
    assert ended.has(f"the nearest: {CASE}")
