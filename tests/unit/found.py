"""A finished run made by hand, in the form that the page of a run reads."""

from datetime import date

from harness.core.record import LAYERS, OUTPUTS
from harness.judge.case import judge_case
from harness.judge.policy import Policy
from harness.plugins.page.table import to_json
from harness.report.run_facts import RunFacts

TOLERANCES = """
[{}]
outputs = {{ tier = "standard", rtol = 1e-4, atol = 1.0, floors = 16.0 }}
layers = "standard"
image = "standard"
why = "only floors matter here"
"""
ABOUT = {
    "environment": {
        "system": "Linux",
        "python": "3.11.7",
        "cpu": "a <fast> one",
        "packages": {"torch": "2.13.0"},
    },
    "command": ["parity", "run", "unet/*"],
    "suites": [{"path": "/home/someone/fixtures/digits/parity.toml", "files": {}}],
}


STANDARD = '[mnn.fp32]\nlayers = "standard"\noutputs = "standard"\n'


def verdicts_of(
    folder,
    *records,
    text=STANDARD,
    whats=(LAYERS, OUTPUTS),
    gaps=(),
    today=date(2026, 1, 1),  # it cannot change
):
    """Judge records by tolerances, which are written into `folder`."""
    path = folder / "tolerances.toml"
    path.write_text(text)
    policy = Policy.load(path)
    return [
        judge_case(one, what, policy, gaps, min_coverage=0.9, today=today)
        for one in records
        for what in whats
    ]


def found_in(
    folder, records, *, gaps=(), exit_code=0, whats=(LAYERS, OUTPUTS), **about
):
    """Judge records by standard tolerances, as a run in `folder` would."""
    variants = dict.fromkeys(f"{one.backend}.{one.variant}" for one in records)
    text = "".join(map(TOLERANCES.format, variants))
    return RunFacts(
        run="2026-11-21T10-00-00",
        records=records,
        verdicts=verdicts_of(folder, *records, text=text, whats=whats, gaps=gaps),
        exit_code=exit_code,
        about=ABOUT,
        folder=folder,
        **about,
    )


def cells(table, title):
    """The cells of one column of a table, as the page's script reads them."""
    told = to_json(table)
    at = [column["title"] for column in told["columns"]].index(title)
    words = told["columns"][at]["words"]
    return [words[row[at]] if words else row[at] for row in told["rows"]]
