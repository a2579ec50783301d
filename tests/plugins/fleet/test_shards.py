"""Divide cases by measured seconds where they are known, and by forecasts otherwise."""

from dataclasses import replace

import pytest

from harness.core import plugins
from harness.plugins.fleet.shards import Shard
from harness.plugins.pipelines.case import PipelineCase
from harness.suite.shards import shard_of
from harness.suite.suite import load_suite
from tests.places import DIGITS

CASES = [("parity.toml", case) for case in load_suite(DIGITS).tested]
EVEN = {(path, case.id): 1.0 for path, case in CASES}


def parts(of, costs, cases=CASES):
    return [Shard(number=n + 1, of=of).part_of(cases, costs)["own"] for n in range(of)]


def subjects(shards):
    """The components and pipelines of each shard."""
    return [{case.split("/")[0] for _, case in shard} for shard in shards]


@pytest.mark.parametrize("of", [1, 2, 5])
def test_shards_have_every_case_once(of):
    keys = [key for part in parts(of, {}) for key in part]

    assert sorted(keys) == sorted((path, case.id) for path, case in CASES)


def test_cases_of_one_component_stay_together():
    for part in parts(3, {}):
        subjects = {case.split("/")[0] for _, case in part}
        whole = {key for key in EVEN if key[1].split("/")[0] in subjects}
        assert set(part) == whole


def test_the_seconds_of_an_earlier_run_decide():
    long = EVEN | {key: 1000.0 for key in EVEN if key[1].startswith("text_encoder/")}

    assert {"text_encoder"} in subjects(parts(2, long))


def test_an_earlier_run_of_fewer_cases_decides_nothing():
    few = dict(list(EVEN.items())[:-1])

    assert parts(3, few) == parts(3, {})
    assert parts(3, few) != parts(3, EVEN)


def test_a_case_that_failed_in_the_earlier_run_is_forecast():
    """The times of the others still decide."""
    long = EVEN | {key: 1000.0 for key in EVEN if key[1].startswith("text_encoder/")}
    failed = long | dict.fromkeys(list(EVEN)[-1:], 0.0)

    assert {"text_encoder"} in subjects(parts(2, failed))


def test_a_pipeline_with_many_pairs_is_forecast_to_take_long():
    many = [
        (path, replace(case, pipeline=replace(case.pipeline, seeds=500)))
        if isinstance(case, PipelineCase) and case.subject == "text2img-eta"
        else (path, case)
        for path, case in CASES
    ]

    assert {"text2img-eta"} in subjects(parts(2, {}, many))
    assert {"text2img-eta"} not in subjects(parts(2, {}))


def test_a_broken_plug_in_of_others_keeps_no_run_from_its_shard(monkeypatch):
    own = plugins._plugins()
    broken = ("a package of others", None, "no module")
    monkeypatch.setattr(plugins, "_plugins", lambda: (broken, *own))

    assert shard_of("3/8") == Shard(number=3, of=8)
