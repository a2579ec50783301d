"""A run in shards: each machine runs a part, and `parity merge` joins the parts."""

import json
import shutil

import pytest

from tests.plugin.project import CASES, Project, rewrite, write_project

OTHER = "vae_encoder"
TWO = f'components = ["vae_decoder", "{OTHER}"]'


def write_two(folder):
    project = write_project(folder)
    project.change("parity.toml", 'components = ["vae_decoder"]', TWO)
    project.tighten()
    return project


@pytest.fixture(scope="module")
def whole(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """A run of two networks, of which one variant is out of tolerance."""
    project = write_two(tmp_path_factory.mktemp("whole"))
    return project, project.parity("run")


@pytest.fixture(scope="module")
def shards(whole, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """The same in two shards, by the command and by pytest."""
    project = write_two(tmp_path_factory.mktemp("shards"))
    first = project.parity("run", "--shard", "1/2")
    second = project.start_pytest("--parity-shard=2/2")
    return project, first, second


@pytest.fixture(scope="module")
def merged(shards):
    project = shards[0].branch(shards[0].path.parent / "merged")
    names = [str(path.parent) for path in shards[0].reports]
    return project, project.parity("merge", *names, "--suite", "parity.toml")


def cases_of(report):
    return {case["case"]: case for case in report["cases"]}


def test_every_case_is_in_one_shard(shards):
    ran = [cases_of(json.loads(path.read_text())) for path in shards[0].reports]

    others = [case.replace("vae_decoder", OTHER) for case in CASES]
    assert sorted(map(sorted, ran)) == [sorted(CASES), sorted(others)]


def test_a_shard_says_what_joins_it(shards):
    for number, ended in enumerate(shards[1:], 1):
        assert ended.has(
            f"this is shard {number} of 2; parity merge makes one run of all of them"
        ), ended.text


def test_the_merged_run_has_the_verdicts_of_one_machine(whole, merged):
    alone, joined = whole[0].report, merged[0].report

    assert [
        (verdict["id"], verdict["outcome"], verdict["reason"])
        for verdict in joined["verdicts"]
    ] == [
        (verdict["id"], verdict["outcome"], verdict["reason"])
        for verdict in alone["verdicts"]
    ]
    assert joined["whole"]
    assert merged[1].code == whole[1].code == 1, merged[1].text


def test_the_merged_run_has_the_rows_of_one_machine(whole, merged):
    alone, joined = cases_of(whole[0].report), cases_of(merged[0].report)

    assert {case: one["rows"] for case, one in joined.items()} == {
        case: one["rows"] for case, one in alone.items()
    }


def test_the_merged_run_says_who_ran_what(shards, merged):
    for number, path in enumerate(shards[0].reports, 1):
        text = f"shard {number}, run {path.parent.name}: 3 cases on "
        assert merged[1].has(text), merged[1].text
        page = (merged[0].reports[0].parent / "report.html").read_text()
        assert text in page
        own = cases_of(json.loads(path.read_text()))
        joined = cases_of(merged[0].report)
        assert all(joined[case]["node"].startswith(f"shard {number}, ") for case in own)


@pytest.fixture
def copies(shards, tmp_path):
    """The folders of both shards' runs, to change."""
    runs = [path.parent for path in shards[0].reports]
    return [shutil.copytree(run, tmp_path / "runs" / run.name) for run in runs]


def remove_case(report):
    gone = f"{report['cases'][0]['case']}/"
    report["cases"] = report["cases"][1:]
    report["verdicts"] = [
        one for one in report["verdicts"] if not one["id"].startswith(gone)
    ]


def remove_check(report):
    """As pytest leaves it where a test of a case did not end."""
    report["shard"]["checks"] = len(report["verdicts"])
    report["verdicts"] = report["verdicts"][1:]


def other_division(report):
    report["shard"]["own"] = report["shard"]["own"][1:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report.pop("shard"), "is no shard, so it cannot be merged"),
        (remove_case, "ended before 1 case ("),
        (remove_check, "ended before 1 check of its cases"),
        (other_division, "the shards divided the cases in different ways"),
        (lambda report: report["shard"].update(of=3), "merge the shards of one run"),
        (lambda report: report["shard"].update(number=1), "are both shard 1/2"),
        (
            lambda report: report["environment"]["packages"].update(torch="2.0"),
            "differ in torch, ",
        ),
        (lambda report: report["environment"].update(commit="c0ffee"), "in commit, "),
        (
            lambda report: report["suites"][0]["files"].update(
                {"parity.toml": "a" * 9}
            ),
            "differ in parity.toml, ",
        ),
        (
            lambda report: report["suites"][0].update(checkpoint="a/b at c0ffee"),
            "differ in the checkpoint, ",
        ),
        (lambda report: report.update(tier="strict"), "differ in tier, "),
    ],
)
def test_runs_that_are_not_one_run_are_refused(shards, copies, change, said):
    rewrite(copies[1] / "report.json", change)
    before = shards[0].reports

    shards[0].parity("merge", *map(str, copies)).check(2, said)

    assert shards[0].reports == before


def test_a_checkpoint_may_be_in_another_folder_on_each_machine(
    shards, copies, tmp_path
):
    rewrite(
        copies[1] / "report.json",
        lambda report: report["suites"][0].update(checkpoint="job-7"),
    )
    project = shards[0].branch(tmp_path / "elsewhere")

    ended = project.parity("merge", *map(str, copies), "--suite", "parity.toml")

    assert ended.code == shards[1].code, ended.text


def test_a_missing_shard_is_named(shards, copies):
    shards[0].parity("merge", str(copies[0])).check(
        2, "shard 2/2 is missing; name the runs of all 2 shards."
    )


def test_a_suite_that_changed_since_is_refused(shards, copies, tmp_path):
    project = shards[0].branch(tmp_path / "changed")
    project.change("tolerances.toml", '"quantized"', '"strict"')

    project.parity("merge", *map(str, copies), "--suite", "parity.toml").check(
        2, "has changed since the shards ran; check out their commit"
    )


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        ("3/2", "there is no shard 3 of 2; the last one is 2/2."),
        ("0/2", "a shard is written as in 3/8, the third of eight; got '0/2'."),
        ("half", "a shard is written as in 3/8, the third of eight; got 'half'."),
        ("1/3", "at most 2 shards can be made of these cases"),
    ],
)
@pytest.mark.parametrize("way", ["command", "pytest"])
def test_a_shard_that_cannot_be_is_refused(shards, tmp_path, shard, said, way):
    project: Project = shards[0].branch(tmp_path / "refused")

    ended = (
        project.parity("run", "--shard", shard)
        if way == "command"
        else project.collect(f"--parity-shard={shard}")
    )

    ended.check({"command": 2, "pytest": 4}[way], said)
    assert not project.reports
