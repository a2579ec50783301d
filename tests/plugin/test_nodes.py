"""`parity nodes` shows a run's case on the graph in Model Explorer."""

import json

from harness.commands.cli import main

CASE = "vae_decoder/mnn/fp32"


def test_a_case_s_nodes_are_the_values_of_its_program(failing, tmp_path, capsys):
    project, _ = failing
    (report,) = project.reports
    out = tmp_path / "nodes.json"

    code = main(["nodes", str(report), CASE, "--out", str(out)])

    results = json.loads(out.read_text())["results"]
    record = next(
        case for case in json.loads(report.read_text())["cases"] if case["case"] == CASE
    )
    assert code == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert set(results) == set(record["probes"]["probe"])


def test_a_case_that_is_not_there_is_named_with_its_nearest(failing, capsys):
    project, _ = failing
    (report,) = project.reports

    assert main(["nodes", str(report), "vae_decoder/mnn/fp31"]) == 2

    assert f"the nearest: {CASE}" in capsys.readouterr().err
