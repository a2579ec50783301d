"""What the core does with the functions of plug-ins, and without any."""

from importlib import metadata
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from harness.core import plugins
from harness.core.errors import SpecError
from harness.core.outcome import Outcome
from harness.core.plugins import GROUP, Plugin, answers, first_answer
from harness.core.record import OUTPUTS
from harness.engine import keys, tasks
from harness.judge.case import judge_case
from harness.measure.patterns import Off, pattern_of
from tests.unit.judge.test_case import TODAY, TOLERANCES
from tests.unit.reports import output, policy_of, record

ONES = np.ones((2, 3), np.float32)
OFF = Off(expected=ONES, actual=2 * ONES, floor_rms=1e-7, op="Add", near={})


def everywhere(off):
    return f"it is {off.actual[0, 0]:g} everywhere"


def nothing(_off):
    return ""


def nothing_at_all(_off):
    return None


def differs(record, what, *, failing):  # noqa: ARG001  # the form of a finding
    return Outcome.WEIGHTS, f"{record.component} is another one"


def fails(record, what, *, failing):  # noqa: ARG001  # as above
    return record["no such key"]


@pytest.fixture
def install(monkeypatch):
    """Take away all plug-ins, and install one that has functions of this file."""

    def install(*refused, **kinds):
        named = {k: tuple(f"{__name__}:{f}" for f in v) for k, v in kinds.items()}
        every = [("mine", Plugin(**named), ""), *(("bad", None, r) for r in refused)]
        monkeypatch.setattr(plugins, "_plugins", lambda: tuple(every))
        keys.code_of_plugins.cache_clear()

    yield install
    keys.code_of_plugins.cache_clear()


@pytest.mark.parametrize(
    ("functions", "words"),
    [((), ""), (("nothing",), ""), (("nothing", "everywhere"), "it is 2 everywhere")],
    ids=["no plug-in", "it knows none", "the second knows it"],
)
def test_the_first_plug_in_that_knows_a_pattern_says_it(install, functions, words):
    install(patterns=functions)
    assert pattern_of(OFF) == words


def test_a_plug_in_that_cannot_be_loaded_answers_nothing(install):
    install("no module", patterns=("everywhere",))
    assert [*answers("patterns", OFF)] == ["it is 2 everywhere"]
    assert [one.name for one in plugins.added("patterns")][1:] == [GROUP]


def test_a_function_that_is_not_there_is_refused(install):
    install(patterns=("gone",))
    with pytest.raises(SpecError, match="test_plugins:gone cannot be loaded"):
        pattern_of(OFF)


@pytest.mark.parametrize(
    ("functions", "found", "words"),
    [
        ((), Outcome.WITHIN, "2 floors, allowed 16"),
        (("differs",), Outcome.WEIGHTS, "unet is another one"),
        (("fails",), Outcome.RUN, "not subscriptable"),
    ],
)
def test_a_finding_counts_before_values(install, tmp_path, functions, found, words):
    install(findings=functions)
    policy = policy_of(tmp_path, TOLERANCES)
    made = record(output(2))
    verdict = judge_case(made, OUTPUTS, policy, (), min_coverage=0.9, today=TODAY)
    assert verdict.found is found
    assert words in verdict.reason


def test_a_comparison_of_graphs_is_decided_by_the_plug_ins_that_make_it(install):
    stage = tasks.CHECKED.of(takes=())
    install()
    bare = stage.key()
    install(graphs=("differs",))
    assert stage.key()["plugins"] == {f"{__name__}:differs": keys._code_at(__name__)}
    assert stage.key() != bare


def test_an_own_plug_in_without_an_entry_point_is_named(monkeypatch, tmp_path):
    for name in ("tune", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    point = EntryPoint("tune", "harness.plugins.tune:PLUGIN", GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [point])
    monkeypatch.setattr(plugins, "HOME", tmp_path)

    found = {name: refused for name, _, refused in plugins._plugins.__wrapped__()}

    assert found["tune"] == ""
    assert "install the harness again" in found["new"]


LACKING = SpecError("none is installed")


@pytest.mark.parametrize("other", ["nothing_at_all", "gone"])
def test_the_first_function_that_knows_an_answer_gives_it(install, other):
    install(patterns=(other, "everywhere"))
    assert first_answer("patterns", OFF, lacking=LACKING) == "it is 2 everywhere"


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (("gone", "nothing_at_all"), "test_plugins:gone cannot be loaded"),
        (("nothing_at_all",), "none is installed"),
        ((), "none is installed"),
    ],
    ids=["one is gone", "none knows it", "there is none"],
)
def test_where_no_function_answers_the_reason_is_said(install, functions, words):
    install(patterns=functions)
    with pytest.raises(SpecError, match=words):
        first_answer("patterns", OFF, lacking=LACKING)
