"""Records are unchanged after JSON, and the JSON is strict."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from harness.core.case import Sample
from harness.core.errors import SuiteError
from harness.core.received import DamagedError
from harness.core.record import CaseRecord, Row, labels, left_out
from harness.core.record_form import TriedInput
from harness.engine.finished_run import find_run, load_report
from harness.engine.run_folder import RunFolder
from harness.measure.compare import compare
from tests.unit.reports import COVERAGE, chain, output, record
from tests.unit.snapshots import MACHINE

BROKEN = Row(
    sample="s-0",
    what="layers",
    probe="nan",
    position=9,
    op="aten.div.Tensor",
    module="net.nan",
    source="",
    parents=("v0",),
    comparison=compare(
        expected=np.array([np.nan, 1.0]), actual=np.array([1.0, np.inf])
    ),
)


def strict(text):
    def refuse(word):
        pytest.fail(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_record_survives_strict_json():
    made = record(
        *chain(1, 2),
        BROKEN,
        output(1),
        suite="/a/parity.toml",
        observer_max_abs={"s-0": math.inf},
        rewrite_max_abs=math.nan,
        stand_ins=("weights",),
        took_s={"candidate": 0.5},
        tried=(
            TriedInput(
                sample=Sample(profile="realistic", index=0, shapes=(("batch", 1),)),
                why="kept",
                usage=math.inf,
            ),
        ),
    )

    text = json.dumps(made.to_json(), allow_nan=False)
    again = CaseRecord.from_json(strict(text))

    assert repr(again) == repr(made)


def test_rows_of_many_samples_name_their_probe_once():
    rows = [row for n in range(9) for row in chain(1, 2, 3, sample=f"s-{n}")]

    data = record(*rows).to_json()

    assert len(data["rows"]["rms"]) == 27
    assert len(data["probes"]["probe"]) == 3


@pytest.mark.parametrize("column", ["rms", "sample"])
def test_a_column_that_is_too_short_is_refused(column):
    data = record(*chain(1, 2)).to_json()
    data["rows"][column].pop()

    with pytest.raises(DamagedError, match=r"`rows` has [12] of"):
        CaseRecord.from_json(data)


def test_two_suites_of_a_run_keep_their_cases_apart(tmp_path):
    folder = RunFolder(path=tmp_path / "run")
    for suite in ("/a/digits/parity.toml", "/a/sd15/parity.toml"):
        folder.record_once((suite, "unet/mnn/fp32"), record)

    kept = folder.records()

    assert len(kept) == 2
    assert sorted(labels(kept.values()).values()) == [
        "digits:unet/mnn/fp32",
        "sd15:unet/mnn/fp32",
    ]


def test_suites_of_folders_with_one_name_are_told_apart():
    made = [record(suite=f"/{folder}/x/parity.toml") for folder in "ab"]

    assert len(set(labels(made).values())) == 2


def test_a_record_is_made_once(tmp_path):
    folder = RunFolder(path=tmp_path)
    folder.record_once(("s", "a/b/c"), record)

    def again():
        pytest.fail("it is made already")

    assert folder.record_once(("s", "a/b/c"), again).case == record().case


def test_a_part_of_a_record_is_kept_until_the_whole_record_is_there(tmp_path):
    folder = RunFolder.create(tmp_path, NOW)
    folder.record_once(("s", "a/b/c"), record)
    part = replace(record(), case="a/b/d", suite="s", log="a part")

    folder.keep_part(part)
    kept = RunFolder(path=folder.path).records()["s", "a/b/d"]
    folder.record_once(part.key, lambda: replace(part, log="whole"))
    whole = RunFolder(path=folder.path).records()["s", "a/b/d"]
    finish(folder)
    folder.keep_part(part)

    assert (kept.log, whole.log) == ("a part", "whole")
    assert [path.name for path in folder.path.iterdir()] == ["report.json"]


def finish(folder):
    about: dict[str, object] = {"required": [], "environment": MACHINE}
    about |= {"suites": [{"path": "s", "files": {}}]}
    about |= {"tier": "", "changes": [], "whole": True}
    return folder.finish(about, [], list(folder.records().values()))


def test_a_finished_run_is_one_file_without_locks(tmp_path):
    folder = RunFolder(path=tmp_path / "2026-01-01T00-00-00")
    folder.record_once(("s", "unet/mnn/fp32"), record)

    path = finish(folder)

    assert [p.name for p in folder.path.iterdir()] == ["report.json"]
    strict(path.read_text())
    assert list(load_report(tmp_path, folder.id).records) == [("s", "unet/mnn/fp32")]


def test_last_is_the_newest_that_was_finished(tmp_path):
    for name in ("00-00-02", "00-00-10-77", "00-00-09"):
        folder = RunFolder(path=tmp_path / f"2026-01-01T{name}")
        folder.path.mkdir()
        finish(folder)
    (tmp_path / "2026-01-01T00-00-11").mkdir()

    assert find_run(tmp_path, "last").parent.name == "2026-01-01T00-00-10-77"
    with pytest.raises(SuiteError, match=r"the newest are .*, 2026-01-01T00-00-10-77"):
        find_run(tmp_path, "2025")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_two_runs_of_a_second_get_folders_of_their_own(tmp_path):
    names = [RunFolder.create(tmp_path, NOW).id for _ in range(3)]

    assert names == [f"2026-01-01T00-00-00{end}" for end in ("", "-1", "-2")]


def test_a_file_where_runs_should_go_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")

    for runs in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SuiteError, match="cannot be written to"):
            RunFolder.create(runs, NOW)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({}, []),
        ({"fused": 3}, ["3 fused away"]),
        ({"fused": 3, "inside": 3}, ["3 fused away, all into compared values"]),
        (
            {"fused": 3, "inside": 2, "unmatched": 1},
            ["3 fused away, 2 of them into compared values", "1 unmatched"],
        ),
    ],
)
def test_what_was_not_compared_is_said_and_where_it_went(counts, said):
    assert list(left_out(record(coverage={**COVERAGE, **counts}))) == said
