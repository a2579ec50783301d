"""Finished runs made by hand, in the form in which they are read."""

import json
from dataclasses import replace
from pathlib import Path

from harness.core.received import convert
from harness.core.record import ISOLATED, SELF
from harness.engine.finished_run import of_form
from harness.engine.report_form import ReportForm
from harness.engine.run_folder import SCHEMA
from tests.unit.reports import CASE, output, record

SUITE = "/somewhere/digits/parity.toml"
MACHINE = {
    "id": "aaaa0000",
    "cpu": "A processor",
    "core_count": 2,
    "python": "3.11.2",
    "packages": {"MNN": "3.6.1", "torch": "2.13.0"},
    "commit": "0123abcd",
    "dirty": False,
}


def verdict(id_, outcome="within", reason="well within"):
    return {"suite": SUITE, "id": id_, "outcome": outcome, "reason": reason}


def report(*records, verdicts=(), id_="2026-11-20T10-00-00", **about):
    """A report's JSON; every check of every record is within unless said otherwise."""
    told = {one["id"]: one for one in verdicts}
    for made in records:
        for what in {row.what: row for row in made.rows}.keys() - {ISOLATED, *SELF}:
            told.setdefault(f"{made.case}/{what}", verdict(f"{made.case}/{what}"))
    data = {
        "schema": SCHEMA,
        "id": id_,
        "required": [],
        "whole": True,
        "suites": [{"path": SUITE, "files": {"parity.toml": "f00d"}}],
        "environment": MACHINE,
        "tier": "",
        "changes": [],
        "verdicts": list(told.values()),
        "cases": [replace(made, suite=SUITE).to_json() for made in records],
        **about,
    }
    return json.loads(json.dumps(data))


def report_of(data, path):
    """A finished run from the JSON of its report."""
    return of_form(convert(data, ReportForm, words=True), path)


def run(*records, **about):
    return report_of(report(*records, **about), Path("report.json"))


def off_by(floors, *, case=CASE, **about):
    """A run of one case whose output is so many floors off."""
    return run(record(output(floors), case=case), **about)


def exactly(_case, _row):
    """Compares required atol at rtol 0, as of a tier that states none."""
    return 0.0
