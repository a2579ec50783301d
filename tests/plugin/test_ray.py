"""Cases run on a Ray cluster: the same rows, each once, whatever happens."""

import json
import platform
import random
import re
import signal
import tarfile
import time
from collections import defaultdict
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import psutil
import pytest

from harness.core.end_to_end import PAIRS
from harness.core.entry import read_entry
from harness.core.errors import ParityError
from harness.engine.needs import Takes
from harness.engine.worker_pool import Progress, end_kept
from harness.plugins.fleet.cluster import node_name
from harness.plugins.fleet.ray_executor import RayExecutor
from tests.plugin.bucket import SECRETS, free_port
from tests.plugin.drawing import ONNXRUNTIME, STEPS
from tests.plugin.project import CASES, LIMIT_S, PARITY, Project, begun

KILLS = 20
SUBJECTS = ("vae_decoder", "text2img")
MANY_PAIRS = "seeds = 500\nattribution = false\nmargin = { psnr = 60 }\nsteps = 300"

pytestmark = [
    pytest.mark.fleet,
    # Ray leaves the logs of this server open in the process that starts a head node.
    pytest.mark.filterwarnings(
        "ignore:.*ray_client_server:pytest.PytestUnraisableExceptionWarning"
    ),
]


def measured(report):
    """The rows of a report, without what differs from run to run."""
    return {case["case"]: case["rows"] for case in report["cases"]}


@pytest.fixture
def cluster(request, tmp_path, monkeypatch):
    """A cluster, two nodes of one core if nothing is asked, each with its own cache."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("PARITY_STORE", raising=False)
    made, port = Cluster(), free_port()
    made.url = f"ray://127.0.0.1:{port}"
    for at, cores in enumerate(getattr(request, "param", (1, 1))):
        made.add_node(
            num_cpus=cores,
            include_dashboard=False,
            ray_client_server_port=None if at else port,  # of the head alone
            env_vars={"XDG_CACHE_HOME": str(tmp_path / f"node-{at}")},
        )
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "desk"))
    yield made
    made.shutdown()


@pytest.fixture
def shared(tmp_path):
    return f"file://{tmp_path}/shared"


def entries(shared):
    folder = shared.removeprefix("file://")
    found = [path.name for path in Path(folder).rglob("*.tar")]
    assert len(found) == len(set(found))
    return found


def check(shared, folder):
    """Unpack every entry, and read all of its files."""
    home = Path(shared.removeprefix("file://"), "v1")
    for path in home.rglob("*.tar"):
        into = folder / path.relative_to(home).with_suffix("")
        with tarfile.open(path) as tar:
            tar.extractall(into, filter="data")
        read_entry(into).check()


def test_two_nodes_measure_the_same_and_export_once(passing, cluster, shared, tmp_path):
    project = passing[0].branch(tmp_path / "there")
    ended = project.run(*PARITY, "run", "--on", cluster.url, "--store", shared).check(0)
    assert measured(project.report) == measured(passing[0].report)
    assert all(case["node"] for case in project.report["cases"])
    took = [case["took_s"] for case in project.report["cases"]]
    assert ["onnx" in one for one in took].count(True) == 1
    assert ended.has(f"{len(CASES)} of {len(CASES)} cases agree")
    assert project.parity("show", "last", "vae_decoder/onnxruntime/fp32").has("ran on")


def test_two_nodes_and_a_bucket_do_what_one_does(passing, server, cluster, tmp_path):
    """The server answers nobody for ten seconds meanwhile: waited for, and said."""
    project = passing[0].branch(tmp_path / "there")
    stores = "node-*/parity-harness/shared/*/v1"
    command = (*PARITY, "run", "--on", "ray", "--store", "s3://parity/ours")
    with begun(command, project.path) as run:
        assert until(lambda: list(tmp_path.glob(f"{stores}/inputs")), LIMIT_S)
        server.pause(10)
        text, _ = run.communicate(timeout=LIMIT_S)

    assert run.returncode == 0, text
    assert re.search(r"waiting +s3://parity/ours +.* (onnx|asked|inputs)/", text), text
    assert measured(project.report) == measured(passing[0].report)
    assert project.outcomes == passing[0].outcomes
    made = defaultdict(set)
    for mark in tmp_path.glob(f"{stores}/*/??/*/entry.json"):
        made["/".join(mark.parts[-4:-1])].add(
            mark.read_bytes()
        )  # with the time when it was made
    assert {"onnx", "reference", "mnn"} <= {name.partition("/")[0] for name in made}
    assert all(len(marks) == 1 for marks in made.values())
    logs = Path(cluster.head_node.get_logs_dir_path())
    files = [file for folder in (tmp_path, logs) for file in folder.rglob("*")]
    told = [text.encode(), *(file.read_bytes() for file in files if file.is_file())]
    assert not [one for one in SECRETS if any(one.encode() in some for some in told)]


def test_versions_are_tried_on_two_nodes(passing, cluster, shared, tmp_path):
    del cluster
    project = passing[0].branch(tmp_path / "there")
    asked = ("versions", "vae_decoder/mnn/fp32", "--from", "3.5.0")
    there = project.run(*PARITY, *asked, "--on", "ray", "--store", shared)
    here = project.run(*PARITY, *asked)
    assert (there.code, here.code) == (0, 0), there.text
    assert there.text.partition("page")[0] == here.text.partition("page")[0]


def test_a_node_draws_the_same_pairs_and_pictures(drawing, cluster, shared, tmp_path):
    del cluster
    pairs = "seeds = 20\nattribution = false\nmargin = { psnr = 60 }\nsteps ="
    drawing.change("parity.toml", "steps =", pairs)
    there = drawing.branch(tmp_path / "there")
    assert drawing.parity("run", "--e2e").code == 0

    there.run(*PARITY, "run", "--e2e", "--on", "ray", "--store", shared).check(0)

    here, found = (one.case(ONNXRUNTIME)["pipeline"][PAIRS] for one in (drawing, there))
    assert found["losses"] == here["losses"]
    (run,) = there.path.glob("reports/runs/*")
    assert all((run / path).is_file() for path in found["pictures"])


def test_a_node_that_times_a_component_is_in_the_record(drawing, cluster, shared):
    del cluster
    asked = ("bench", *SUBJECTS, "--rounds", "2", "--on", "ray", "--store", shared)

    ended = drawing.run(*PARITY, *asked).check(0)
    (path,) = drawing.path.glob("reports/runs/*/bench.json")
    told = json.loads(path.read_text())
    nodes = {subject: set() for subject in SUBJECTS}
    for one in told["benchmarks"]:
        nodes[one["case"].partition("/")[0]].add(one["node"])
        assert one["machine"] == told["environment"]["id"]  # both nodes are here
    (first,), (second,) = nodes.values()
    assert first != second
    assert ended.has(first)
    assert ended.has(second)


class Sleeps:
    """A task of one second."""

    node_number = 0

    def __init__(self, *, alone=False, takes=None):
        self.alone, self.takes = alone, takes or Takes()

    def __call__(self, _):
        begin = time.time()
        time.sleep(1)
        return begin, time.time()


def beside(tasks):
    """Run tasks; return each pair of them that ran at one time."""
    executor = RayExecutor("ray")
    waiting = [executor.submit(task) for task in tasks]
    ran = [future.result(timeout=LIMIT_S) for future in waiting]
    executor.shutdown()
    return [
        (one, two)
        for (one, (begin, end)), (two, (start, stop)) in permutations(
            zip(tasks, ran, strict=True), 2
        )
        if begin < stop and start < end
    ]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("cluster", [(2,)], indirect=True, ids=["one-node"])
def test_a_task_that_must_be_alone_shares_its_node_with_none():
    found = beside([Sleeps(alone=at % 2 == 0) for at in range(4)])
    assert [one for one, _ in found if one.alone] == []


@pytest.mark.parametrize("cluster", [(4,)], indirect=True, ids=["one-node"])
@pytest.mark.parametrize(
    "large",
    # How much memory Ray gives a node depends on what is free; all of it is more.
    [Takes(threads=3), Takes(memory_bytes=psutil.virtual_memory().total)],
    ids=["threads", "memory"],
)
def test_tasks_that_do_not_fit_together_wait(large, cluster):
    """Two want more than the node has; a small one has room beside each of them."""
    del cluster
    found = beside([Sleeps(takes=large), Sleeps(takes=large), Sleeps()])
    assert found
    assert [one for one, two in found if one.takes == two.takes] == []


@pytest.mark.usefixtures("cluster")
def test_a_number_means_the_same_node_every_time():
    class Named:
        takes, alone = Takes(), True

        def __init__(self, number):
            self.node_number = number

        def __call__(self, _):
            return node_name()

    executor = RayExecutor("ray")
    waiting = [executor.submit(Named(number)) for number in (0, 1, 2, 3, 0)]
    first, second, *others = [one.result(timeout=LIMIT_S) for one in waiting]
    executor.shutdown()

    assert first != second
    assert others == [first, second, first]


@pytest.mark.usefixtures("cluster")
def test_an_error_while_telling_ends_what_waits():
    """Standard output is gone when `parity run --on ray | head -1` has its line."""

    class Tells:
        takes, alone, node_number = Takes(), False, 0

        def __call__(self, tell):
            while True:
                tell(Progress(stage="running", subject="", detail=""))
                time.sleep(0.1)

    def tell(_):
        raise BrokenPipeError

    executor = RayExecutor("ray", tell)
    error = executor.submit(Tells()).exception(timeout=60)
    executor.shutdown()

    assert isinstance(error, BrokenPipeError)


def test_a_cluster_that_is_lost_leaves_a_report_of_what_ended(drawing, shared, cluster):
    drawing.change("parity.toml", f"steps = {STEPS}", MANY_PAIRS)
    said = drawing.path / "said"
    command = (*PARITY, "run", "--on", cluster.url, "--store", shared)
    with said.open("w") as stream, begun(command, drawing.path, stream) as run:
        assert until(lambda: "✓ vae_decoder" in said.read_text(), LIMIT_S)
        cluster.shutdown()
        run.wait(timeout=120)
    text = said.read_text()

    assert run.returncode == 2, text
    assert "parity: the cluster " in text
    assert "what ended is judged below" in text
    assert "Traceback" not in text
    assert [case["component"] for case in drawing.report["cases"]] == ["vae_decoder"]


@pytest.mark.usefixtures("cluster")
def test_pytest_runs_two_suites_on_two_nodes(passing, shared, tmp_path):
    project = Project(tmp_path / "both")
    for name in ("one", "two"):
        passing[0].branch(project.path / name)
        test = project.path / name / "test_parity.py"
        test.rename(test.with_name(f"test_{name}.py"))

    words = ("--parity-on=ray", f"--parity-store={shared}")
    project.start_pytest("one", "two", *words).check(
        0, f"{2 * len(CASES)} of {2 * len(CASES)} cases agree"
    )

    assert all(case["node"] for case in project.report["cases"])


def test_a_tuning_on_two_nodes_shares_no_drawn_reference(drawing, cluster, shared):
    del cluster
    effort = ("--samples", "3", "--layers", "3", "--seeds", "3", "--on", "ray")

    def tuned(seed):
        words = (*SUBJECTS, *effort, "--store", shared, "--seed", str(seed))
        return drawing.run(*PARITY, "tune", *words).check(0), sorted(entries(shared))

    _, before = tuned(1)
    ended, after = tuned(2)

    for subject in SUBJECTS:
        assert ended.has(f"{subject}: 1 case on 4 inputs (1 suite, 3 independent)")
    assert after == before


def test_a_node_that_dies_loses_no_case(passing, cluster, tmp_path, shared):
    """Twenty times, at random moments; its tasks run again on the other node."""
    project = passing[0].branch(tmp_path / "there")
    expected = measured(passing[0].report)
    start = time.monotonic()
    first = project.run(*PARITY, "run", "--on", "ray", "--store", f"{shared}-first")
    lasts_s = time.monotonic() - start
    assert measured(first.check(0) and project.report) == expected
    random.seed(18)
    for turn in range(KILLS):
        node = next(iter(cluster.worker_nodes))
        store = f"{shared}-{turn}"
        options = ("--on", "ray", "--store", store, "--runs", f"runs-{turn}")
        with begun((*PARITY, "run", *options), project.path) as run:
            time.sleep(random.uniform(0.1, 0.7) * lasts_s)  # no secret
            was_going = run.poll() is None
            cluster.remove_node(node, allow_graceful=False)
            text, _ = run.communicate(timeout=LIMIT_S)
        cluster.add_node(
            num_cpus=1, env_vars={"XDG_CACHE_HOME": str(tmp_path / f"again-{turn}")}
        )

        assert was_going
        assert run.returncode == 0, text
        (path,) = project.path.glob(f"runs-{turn}/*/report.json")
        report = json.loads(path.read_text())
        assert measured(report) == expected
        assert len(report["cases"]) == len(CASES)
        assert entries(store)
        check(store, tmp_path / f"unpacked-{turn}")


def hosts():
    """The processes in which nodes of this machine run stages."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if any("parity-host:" in word for word in process.cmdline()):
                found.add(process)
    return found


def until(is_so, limit_s):
    """Wait until something is so; return whether it is."""
    end_s = time.monotonic() + limit_s
    while not (found := is_so()) and time.monotonic() < end_s:
        time.sleep(0.05)
    return bool(found)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("command", "ended", "words"),
    [
        pytest.param(
            ("run",),
            ("said", "✓ vae_decoder"),
            "stopped; what ended is judged below",
            id="run",
        ),
        pytest.param(
            ("tune", *SUBJECTS, "--samples", "3", "--layers", "3", "--seeds", "500"),
            ("said", "✓ vae_decoder"),
            "stopped; what ended is judged below",
            id="tune",
        ),
        pytest.param(
            ("bench", *SUBJECTS, "--rounds", "1"),
            ("said", "× eager"),  # the head of a table
            "parity: stopped; what was made so far is in the store.",
            id="bench",
        ),
    ],
)
def test_ctrl_c_ends_tasks_and_is_reported(drawing, shared, command, ended, words):
    """The component ends in seconds; its pipeline would take many minutes."""
    end_kept()  # `hosts` would find those that this process keeps
    drawing.change("parity.toml", f"steps = {STEPS}", MANY_PAIRS)

    pattern, sign = ended

    def has_ended():
        return any(sign in path.read_text() for path in drawing.path.glob(pattern))

    said = drawing.path / "said"
    command = (*PARITY, *command, "--on", "ray", "--store", shared)
    with said.open("w") as stream, begun(command, drawing.path, stream) as run:
        assert until(has_ended, LIMIT_S), said.read_text()
        assert until(hosts, LIMIT_S)
        run.send_signal(signal.SIGINT)
        all_ended = until(lambda: not hosts(), 5)
        run.wait(timeout=60)
    text = said.read_text()

    assert all_ended, text
    assert run.returncode == 2, text
    assert words in text
    assert "Traceback" not in text
    written = [path.read_text() for path in drawing.path.glob("reports/*/*/*.json")]
    assert written
    assert all(map(json.loads, written))  # nothing is half of a file


@pytest.mark.usefixtures("cluster")
def test_another_python_on_the_cluster_is_one_sentence(monkeypatch):
    """Ray itself refuses; only what it takes for this process's Python is set."""
    import ray
    from ray._private import utils

    monkeypatch.setattr(utils, "compute_version_info", lambda: ("2.60.0", "3.9.1"))

    with pytest.raises(ParityError) as error:
        RayExecutor("ray")
    ray.shutdown()  # or the node could not be removed

    text = str(error.value)
    assert "Python: 3.9.1" in text
    assert platform.python_version() in text
    assert "\n" not in text


ENDS_ONCE = """\
import os
from pathlib import Path
if b"specific-server" in Path("/proc/self/cmdline").read_bytes():
    if not Path({mark!r}).exists():
        Path({mark!r}).touch()
        os._exit(1)
"""


def test_a_server_of_ray_that_ends_is_asked_for_again(request, tmp_path, monkeypatch):
    mark, folder = tmp_path / "mark", tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ENDS_ONCE.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    RayExecutor(request.getfixturevalue("cluster").url).shutdown()
    assert mark.exists()


def test_no_cluster_at_an_address_is_one_sentence(project):
    ended = project.run(*PARITY, "run", "--on", "ray://127.0.0.1:9")
    ended.check(2, "no Ray cluster can be used at ray://127.0.0.1:9: ")
    assert not ended.has("requires pip package")
    assert not ended.has("Traceback")
    assert project.reports == []
