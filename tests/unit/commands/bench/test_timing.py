"""The timed calls, their number of threads, and the figures made from rounds."""

from dataclasses import replace

from click.testing import CliRunner

from harness.core.case import AT, Case, Target
from harness.core.environment import environment
from harness.plugins.bench.command import bench
from harness.plugins.bench.record import benchmarks, merged
from harness.plugins.bench.timing import (
    Round,
    Subject,
    Timing,
    subjects_of,
    timed_cases,
)
from harness.suite.suite import load_suite
from tests.places import FIXTURES

DIGITS = load_suite(FIXTURES / "digits")


def turn(*runs_s, first_s=1.0, base=100, peak=150, withheld=0.0):
    return Round(
        load_s=0.5,
        first_s=first_s,
        runs_s=runs_s,
        cores=1.0,
        withheld=withheld,
        base_bytes=base,
        peak_bytes=peak,
        size_bytes=7,
        ran={"device": "cpu", "version": "1"},
    )


(MNN,) = DIGITS.select(("unet/mnn/fp32",))
(EAGER, _) = subjects_of([MNN])["unet"]


def timing(*rounds, case=MNN, **about):
    return Timing(subject=Subject(case=case), rounds=rounds, **about)


def entry(*rounds, **about):
    (made,) = benchmarks([timing(*rounds, **about)])
    return made


def test_an_entry_has_every_run_and_the_median_of_each_round():
    made = entry(
        turn(1.0, 2.0, 9.0, first_s=90.0), turn(3.0, 4.0, 5.0, first_s=2.0, peak=120)
    )

    assert made["runs"] == [1000, 2000, 9000, 3000, 4000, 5000]
    assert made["rounds"] == [2000, 4000]
    assert (made["load_ms"], made["first_run_ms"]) == (500.0, 90000.0)
    # What the process gained by loading and running, without what it imported.
    assert made["memory_bytes"] == 50


def test_pytorch_comes_first_in_every_component():
    found = subjects_of(DIGITS.cases)

    assert list(found) == [component.name for component in DIGITS.components]
    for name, (first, *files) in found.items():
        assert first.id == f"{name}/pytorch/eager"
        assert first.is_eager
        assert not any(one.is_eager for one in files)


def test_what_runs_on_a_target_is_not_timed():
    assert isinstance(MNN, Case)
    target = Target(name="phone", command=("python3",))
    there = replace(
        MNN, device=replace(MNN.device, target=target), where=f"{AT}{target.name}"
    )

    found = subjects_of([there, MNN])

    assert [one.id for one in found["unet"]] == ["unet/pytorch/eager", MNN.id]
    assert subjects_of([there]) == {}


def test_pytorch_has_the_threads_of_the_files_it_is_beside():
    assert isinstance(MNN, Case)
    case = replace(MNN, device=replace(MNN.device, threads=5))

    eager = subjects_of([case])["unet"][0]

    assert case.reference.threads != 5
    assert eager.device.threads == 5


def test_new_times_take_the_place_of_old_ones_of_the_same_case_alone():
    old = [
        {"case": "unet/mnn/fp32", "metric": "latency_ms", "runs": [9.0]},
        {"case": "vae/mnn/fp32", "metric": "latency_ms", "runs": [8.0]},
    ]

    made = merged(old, [timing(turn(0.001, 0.002))])

    assert [(one["case"], one["runs"]) for one in made] == [
        ("vae/mnn/fp32", [8.0]),
        ("unet/mnn/fp32", [1.0, 2.0]),
    ]


def test_a_case_that_failed_has_no_row_an_earlier_one_neither():
    failed = timing(failure="it fell back")

    assert list(benchmarks([failed])) == []
    old = [{"case": MNN.id, "metric": "latency_ms", "runs": [9.0]}]
    assert merged(old, [failed]) == []


def test_an_entry_names_the_node_and_its_machine():
    made = entry(turn(0.1), node="one", environment=environment())

    assert (made["node"], made["machine"]) == ("one", environment().id)


def test_each_round_is_compared_with_pytorch_of_the_same_round():
    eager = Timing(subject=EAGER, rounds=(turn(0.1), turn(0.4)))

    own, other = benchmarks([timing(turn(0.2), turn(0.2)), eager])

    assert own["over_pytorch"] == [2.0, 0.5]
    assert other["over_pytorch"] == [1.0, 1.0]
    assert entry(turn(0.2))["over_pytorch"] == []


def test_a_time_is_as_disturbed_as_pytorch_beside_it():
    eager = Timing(subject=EAGER, rounds=(turn(0.1, withheld=0.4),))

    own, other = benchmarks([timing(turn(0.2, withheld=0.01)), eager])

    assert (own["withheld"], other["withheld"]) == (0.4, 0.4)


def test_a_neighbour_in_a_round_or_two_is_left_to_the_rounds():
    rounds = (turn(0.2, withheld=share) for share in (0.0, 0.4, 0.0, 0.0, 0.4, 0.0))

    assert entry(*rounds)["withheld"] == 0.0


def test_all_is_every_component_and_every_pipeline():
    subjects = {case.subject for case in timed_cases(DIGITS, ())}

    assert {"unet", "vae_decoder", "text2img", "canny"} <= subjects


def test_chains_of_several_runtimes_are_timed_only_where_a_name_says_so():
    named = timed_cases(DIGITS, ["text2img"])
    mixed = timed_cases(DIGITS, ["text2img/mixed"])

    assert {case.backend for case in named} == {"onnxruntime", "mnn", "openvino"}
    assert {case.backend for case in mixed} == {"mixed"}


def test_no_round_is_refused():
    ended = CliRunner().invoke(bench, ["--rounds", "0"])

    assert ended.exit_code == 2
    assert "0 is not in the range x>=1" in ended.output
