"""Each damaged file that a command reads of a run ends in a sentence about the file."""

import json
import lzma
import shutil

import pytest

from harness.core.received import unpacked
from harness.engine.finished_run import load_report
from harness.plugins.release.baseline import load_baseline
from harness.report.explained import EXPLANATIONS, Explained
from tests.places import ROOT
from tests.unit.finished import ID, called, run_in, suite_in, told_of
from tests.unit.reports import CASE, chain, output, record
from tests.unit.snapshots import report_of
from tests.unit.tunings import case_of

DEEP = "[" * 100_000 + "]" * 100_000
PAIRS = {
    "by": "",
    "margins": {"psnr": None},
    "prompts": ["three", "four"],
    "seeds": [1, 2],
    "losses": {"psnr": [0.5, 0.25]},
    "limits": {"psnr": [1.0, 1.0]},
    "worst": [0],
    "pictures": ["pictures/text2img+mnn+fp32/seed-1-difference-x1.png"],
}
PIPELINE = {"roles": {"unet": "mnn/fp32"}, "pictures": [], "pairs": PAIRS}
CONTRACT = {"sizes": {"batch": 1}, "inputs": [], "exchanged": [], "repeated": 0.0}
ENTRY = {"digest": "d", "size_bytes": 1, "made_by": {}, "meta": {"unread": ["x"]}}


def run_told():
    """The JSON of a run that has most of what a record may have."""
    told = record(
        *chain(1, 2),
        output(1),
        pipeline=PIPELINE,
        contract=(CONTRACT,),
        artifacts={"mnn": ENTRY},
        took_s={"candidate": 0.5},
    )
    bench = {"case": CASE, "metric": "latency_ms", "runs": [1.0], "rounds": [1.0]}
    return told_of("/elsewhere/parity.toml", told, benchmarks=[bench])


RAW = {
    "empty": lambda _: b"",
    "cut": lambda text: text[: len(text) // 2].encode(),
    "not-utf8": lambda text: text.encode("utf-16"),
    "deep": lambda text: text.replace("{", f'{{"more": {DEEP}, ', 1).encode(),
    "deep-alone": lambda _: DEEP.encode(),
    "list": lambda _: b"[]",
    "number": lambda _: b"7",
    "nothing": lambda _: b"{}",
    "nul": lambda text: text.encode() + b"\0",
}
"""Damages of any JSON file."""


def put(value, *path):
    """A damage that puts a value at a place."""

    def damage(data):
        *above, last = path
        for step in above:
            data = data[step]
        data[last] = value

    return damage


def drop(*path):
    """A damage that removes what is at a place."""

    def damage(data):
        *above, last = path
        for step in above:
            data = data[step]
        del data[last]

    return damage


HUGE = 10**400
ROW = ("cases", 0, "rows")
PROBES = ("cases", 0, "probes")
DRAWN = ("cases", 0, "pipeline")
TOLD = {
    "schema": put(99, "schema"),
    "schema-text": put("four", "schema"),
    "no-cases": drop("cases"),
    "no-suites": drop("suites"),
    "no-environment": drop("environment"),
    "no-machine": drop("environment", "id"),
    "no-whole": drop("whole"),
    "cases-null": put(None, "cases"),
    "id-list": put([1], "id"),
    "id-command": put("x; rm -rf ~", "id"),
    "id-long": put("x" * 999, "id"),
    "suite-number": put(7, "suites", 0, "path"),
    "suite-other": put("/other/parity.toml", "suites", 0, "path"),
    "files-list": put([], "suites", 0, "files"),
    "verdict-of-nothing": put("a/b/c/d", "verdicts", 0, "id"),
    "verdict-short": put("a", "verdicts", 0, "id"),
    "outcome": put("fine", "verdicts", 0, "outcome"),
    "case-number": put(7, "cases", 0),
    "case-id": put("../../x", "cases", 0, "case"),
    "case-unknown": put(1, "cases", 0, "bogus"),
    "no-rows": drop(*ROW),
    "no-column": drop(*ROW, "rms"),
    "unknown-column": put([], *ROW, "bogus"),
    "short-column": put([0.0], *ROW, "rms"),
    "column-number": put(7, *ROW, "rms"),
    "cell-list": put([1.0], *ROW, "rms", 0),
    "cell-text": put("many", *ROW, "rms", 0),
    "cell-null": put(None, *ROW, "rms", 0),
    "count-nan": put("nan", *ROW, "count", 0),
    "count-huge": put(HUGE, *ROW, "count", 0),
    "count-negative": put(-1, *ROW, "count", 0),
    "index-huge": put([HUGE], *ROW, "worst_index", 0),
    "value-huge": put(HUGE, *ROW, "worst_expected", 0),
    "value-beyond": put(10**25, *ROW, "worst_actual", 0),
    "shape-text": put("big", *ROW, "expected_shape", 0),
    "shape-negative": put([-1], *ROW, "expected_shape", 0),
    "shape-deep": put([[1]], *ROW, "expected_shape", 0),
    "shape-long": put([1] * 65, *ROW, "expected_shape", 0),
    "atol-short": put([0.0], *ROW, "required_atol", 0),
    "probe-beyond": put(99, *ROW, "probe", 0),
    "probe-negative": put(-1, *ROW, "probe", 0),
    "no-probes": drop(*PROBES),
    "probes-short": put([], *PROBES, "op"),
    "parent-number": put([7], *PROBES, "parents", 1),
    "parents-text": put("v0", *PROBES, "parents", 1),
    "position-text": put("first", *PROBES, "position", 0),
    "picture": put({"psnr_db": 1.0}, *ROW, "picture", 0),
    "failure": put(
        {"outcome": "fine", "message": "", "log": ""}, "cases", 0, "failure"
    ),
    "failure-list": put([1], "cases", 0, "failure"),
    "asked-deep": put({"a": {"b": {"c": {"d": 1}}}}, "cases", 0, "asked"),
    "asked-target": put({"target": "phone"}, "cases", 0, "asked"),
    "asked-hint": put({"hints": [[]]}, "cases", 0, "asked"),
    "asked-hint-text": put({"hints": ["ab", "c"]}, "cases", 0, "asked"),
    "asked-options": put({"provider_options": [["a"]]}, "cases", 0, "asked"),
    "coverage": put({"computing": []}, "cases", 0, "coverage"),
    "coverage-text": put("all", "cases", 0, "coverage"),
    "contract": put([{}], "cases", 0, "contract"),
    "artifacts": put({"mnn": {}}, "cases", 0, "artifacts"),
    "artifact-size": put("big", "cases", 0, "artifacts", "mnn", "size_bytes"),
    "meta-unread": put(7, "cases", 0, "artifacts", "mnn", "meta", "unread"),
    "meta-bits": put({"many": 1}, "cases", 0, "artifacts", "mnn", "meta", "bits"),
    "meta-bits-long": put(
        {"9" * 5000: 1}, "cases", 0, "artifacts", "mnn", "meta", "bits"
    ),
    "graphs": put([{"weights": 3}], "cases", 0, "graphs"),
    "foreign": put({"by": "names"}, "cases", 0, "foreign"),
    "seconds-nan": put({"candidate": "nan"}, "cases", 0, "took_s"),
    "seconds-list": put({"candidate": []}, "cases", 0, "took_s"),
    "observer": put({"s-0": [1]}, "cases", 0, "observer_max_abs"),
    "pairs-short": put([0.5], *DRAWN, "pairs", "losses", "psnr"),
    "pairs-metric": put({}, *DRAWN, "pairs", "losses"),
    "pairs-worst": put([9], *DRAWN, "pairs", "worst"),
    "attribution": put(
        {"rms": 1, "parts": {}, "interaction": 0}, *DRAWN, "attribution"
    ),
    "picture-above": put(["pictures/a/../../x.png"], *DRAWN, "pictures"),
    "picture-absolute": put(["/etc/x.png"], *DRAWN, "pictures"),
    "bench-empty": put([], "benchmarks", 0, "runs"),
    "bench-zero": put([0.0], "benchmarks", 0, "runs"),
    "bench-text": put("fast", "benchmarks", 0),
    "tolerances": put("outputs = [", "suites", 0, "tolerances"),
    "tolerances-list": put([], "suites", 0, "tolerances"),
    "coverage-nan": put("nan", "suites", 0, "coverage"),
}
"""Damages of what a report says."""


def text_of(data):
    return json.dumps(data)


def damaged(data, damage):
    damage(data)
    return text_of(data).encode()


COMMANDS = {
    "show": ("show", "run"),
    "case": ("show", "run", CASE),
    "report": ("report", "run"),
    "nodes": ("nodes", "run", CASE),
    "diff": ("diff", "run", "last"),
    "gate": ("gate", "run"),
    "accept": ("baseline", "accept", "run", "--who", "A. Reviewer"),
    "merge": ("merge", "run"),
    "card": ("card", "run", "--store", "store"),
}


def test_the_run_that_is_damaged_below_is_sound(tmp_path, capsys):
    run_in(tmp_path / "run", run_told())
    for words in (("show", "run"), ("show", "run", CASE), ("report", "run")):
        code, text = called(capsys, tmp_path, *words)
        assert code == 0, text


def check(code, text, path):
    assert code == 2, text
    assert "error of the harness" not in text
    assert "Traceback" not in text
    assert str(path) in text
    assert len(text) < 1000


@pytest.mark.parametrize("damage", [*RAW, *TOLD])
def test_a_damaged_report_is_a_sentence(tmp_path, capsys, damage):
    run = run_in(tmp_path / "run", run_told())
    make = RAW.get(damage)
    content = make(text_of(run_told())) if make else damaged(run_told(), TOLD[damage])
    (run / "report.json").write_bytes(content)
    for words in (COMMANDS["show"], COMMANDS["case"]):
        code, text = called(capsys, tmp_path, *words)
        check(code, text, "report.json")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", ["cut", "deep", "short-column"])
def test_every_command_refuses_a_damaged_report(tmp_path, capsys, damage, command):
    sound = run_told()
    run_in(tmp_path / "reports" / "runs" / "2026-01-01T00-00-00", sound | {"id": "old"})
    make = RAW.get(damage)
    content = make(text_of(sound)) if make else damaged(run_told(), TOLD[damage])
    run = run_in(tmp_path / "run", sound)
    code, _ = called(
        capsys, tmp_path, "baseline", "accept", "run", "--who", "A. Reviewer"
    )
    assert code == 0
    (run / "report.json").write_bytes(content)

    code, text = called(capsys, tmp_path, *COMMANDS[command])

    check(code, text, "report.json")


def bomb():
    """A small file that unpacks to more than any baseline has."""
    packer = lzma.LZMACompressor()
    block = b" " * (1 << 24)
    blocks = [packer.compress(block) for _ in range(17)]
    return b"".join(blocks) + packer.flush()


def packed(damage):
    def make(data):
        damage(data)
        return lzma.compress(text_of(data).encode())

    return make


BASELINES = {
    **{
        name: lambda data, make=make: lzma.compress(make(text_of(data)))
        for name, make in RAW.items()
    },
    "not-packed": lambda data: text_of(data).encode(),
    "file-empty": lambda _: b"",
    "file-cut": lambda data: lzma.compress(text_of(data).encode())[:-20],
    "bomb": lambda _: bomb(),
    "more-after": lambda data: lzma.compress(text_of(data).encode()) + b"more",
    "nobody": packed(drop("accepted")),
    "who": packed(put([], "accepted", "who")),
    "when": packed(put("today", "accepted", "when")),
    "short-column": packed(put([0.0], *ROW, "rms")),
    "probe-beyond": packed(put(99, *ROW, "probe", 0)),
    "count-huge": packed(put(HUGE, *ROW, "nonfinite_mismatched", 0)),
    "no-cases": packed(drop("cases")),
    "no-machine": packed(drop("environment", "id")),
}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("baseline", "list"), id="list"),
        pytest.param(("diff", "kept", "last"), id="diff"),
        pytest.param(("gate", "last", "--baseline", "kept"), id="gate"),
        pytest.param(("report", "last", "--baseline", "kept"), id="report"),
    ],
)
@pytest.mark.parametrize("damage", BASELINES)
def test_a_damaged_baseline_is_a_sentence(tmp_path, capsys, damage, words):
    run_in(tmp_path / "reports" / "runs" / ID, run_told())
    accept = ("baseline", "accept", "--name", "kept", "--who", "A. Reviewer")
    assert called(capsys, tmp_path, *accept)[0] == 0
    path = tmp_path / "reports" / "baselines" / "kept.json.xz"
    data = json.loads(unpacked(path.read_bytes(), 1 << 20))
    path.write_bytes(BASELINES[damage](data))
    code, text = called(capsys, tmp_path, *words)
    check(code, text, "kept.json.xz")


def explained_in(folder):
    one = Explained(
        suite="/elsewhere/parity.toml",
        case=CASE,
        measured="",
        first="v0",
        command="parity explain",
        facts=(("what", "it is so"),),
        toml="",
    )
    one.save(folder)
    (path,) = (folder / EXPLANATIONS).glob("*.json")
    return path


EXPLAINED = {
    "facts": put(7, "facts"),
    "fact-alone": put([["what"]], "facts"),
    "case": put("../x", "case"),
    "no-case": drop("case"),
    "toml": put(["x"], "toml"),
}


@pytest.mark.parametrize("damage", [*RAW, *EXPLAINED])
def test_a_damaged_explanation_is_a_sentence(tmp_path, capsys, damage):
    run = run_in(tmp_path / "run", run_told())
    path = explained_in(run)
    data = json.loads(path.read_text())
    make = RAW.get(damage)
    content = make(text_of(data)) if make else damaged(data, EXPLAINED[damage])
    path.write_bytes(content)
    code, text = called(capsys, tmp_path, "show", "run")
    check(code, text, path.name)


TRIED = ("cases", 0, "tried", 0)
TUNINGS = {
    "schema": put(99, "schema"),
    "usage-text": put("much", *TRIED, "usage"),
    "why": put("odd", *TRIED, "why"),
    "sample": put({}, *TRIED, "sample"),
    "profile": put("odd", *TRIED, "sample", "profile"),
    "none": put([], "cases", 0, "tried"),
}


@pytest.mark.parametrize("damage", [*RAW, *TUNINGS])
def test_a_damaged_tuning_is_a_sentence(tmp_path, capsys, damage):
    suite = suite_in(tmp_path / "suite") / "parity.toml"
    data = told_of(suite, case_of(output(1), draws=2))
    path = run_in(tmp_path / "reports" / "tuning" / ID, data) / "report.json"
    make = RAW.get(damage)
    path.write_bytes(make(text_of(data)) if make else damaged(data, TUNINGS[damage]))
    code, text = called(capsys, tmp_path, "tune", "--from", "last", "--suite", "suite")
    check(code, text, "reports/tuning")


def plan_told():
    costs = {"4": 10, "8": 20, "32": 80}
    layer = {"names": ["m"], "modules": [], "bits": 8, "bytes": 20, "costs": costs}
    layer |= {"seconds": {}, "shares": {"4": 0.5, "8": 0.1}}
    return {"component": "unet", "within": "outputs", "layers": [layer]}


PLANS = {
    "no-layers": drop("layers"),
    "bits": put("eight", "layers", 0, "bits"),
    "costs": put({}, "layers", 0, "costs"),
    "cost-text": put({"8": "much"}, "layers", 0, "costs"),
    "bits-text": put({"eight": 1}, "layers", 0, "costs"),
    "share": put({"16": 1.0}, "layers", 0, "shares"),
    "seconds": put({"4": 1.0}, "layers", 0, "seconds"),
    "nameless": put(
        {**plan_told()["layers"][0], "names": [], "modules": []}, "layers", 0
    ),
}


@pytest.mark.parametrize("damage", [*RAW, *PLANS])
def test_a_damaged_plan_is_a_sentence(tmp_path, capsys, damage):
    path = tmp_path / "reports" / "plans" / "mnn" / "unet-planned.json"
    path.parent.mkdir(parents=True)
    words = ("plan", "unet", "--explain", "m")
    path.write_text(text_of(plan_told()))
    assert called(capsys, tmp_path, *words)[0] == 0
    make = RAW.get(damage)
    content = (
        make(text_of(plan_told())) if make else damaged(plan_told(), PLANS[damage])
    )
    path.write_bytes(content)

    code, text = called(capsys, tmp_path, *words)

    check(code, text, path.name)


def test_a_report_that_is_no_plain_file_is_a_sentence(tmp_path, capsys):
    run = run_in(tmp_path / "run", run_told())
    explained_in(run)
    path = run / EXPLANATIONS / "pipe.json"
    path.mkdir()
    code, text = called(capsys, tmp_path, "show", "run")
    check(code, text, "pipe.json")


def test_a_damaged_run_does_not_hide_the_times_of_another(tmp_path, capsys):
    runs = tmp_path / "reports" / "runs"
    run_in(runs / ID, run_told())
    (run_in(runs / "2026-11-21T10-00-00", {}) / "report.json").write_text(DEEP)
    code, text = called(capsys, tmp_path, "show", ID)
    assert code == 0, text


def test_a_kept_baseline_reads_as_before():
    """Every number of the baseline in this repository, written in the form of today."""
    path = ROOT / "reports" / "baselines" / "digits.json.xz"
    data = json.loads(lzma.decompress(path.read_bytes()))
    again = load_baseline(path).report
    assert len(again.records) == len(data["cases"])
    for case, one in zip(data["cases"], again.records.values(), strict=True):
        written = one.to_json(brief=True)
        assert {name: written[name] for name in case} == case


def test_a_report_reads_as_it_was_written(tmp_path):
    made = run_told()
    folder = run_in(tmp_path / "run", made)
    (case,) = load_report(tmp_path, str(folder)).records.values()
    assert json.loads(text_of(case.to_json())) == made["cases"][0]
    assert repr(case) == repr(next(iter(report_of(made, folder).records.values())))


def test_pictures_that_lead_out_of_a_run_are_not_shown(tmp_path, capsys):
    name = "pictures/text2img+mnn+fp32/0-difference-x16.png"
    told = run_told()
    told["cases"][0]["pipeline"]["pictures"] = [name]
    run = run_in(tmp_path / "run", told)
    secret = tmp_path / "secret.png"
    shutil.copy(ROOT / "docs" / "report-phone.png", secret)
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(secret)

    code, text = called(capsys, tmp_path, "report", "run")

    assert code == 0, text
    assert "data:image" not in (run / "report.html").read_text()
