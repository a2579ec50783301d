"""`harness.engine.stage`: a stage is a declaration and a function, in any module."""

import pytest

from harness.core.digest import digest_value
from harness.core.errors import SpecError, StageError, StoreError
from harness.core.outcome import Outcome
from harness.engine.artifacts import Artifacts
from harness.engine.stage import Stage
from harness.engine.store import Store
from harness.engine.work import work
from harness.engine.worker_pool import WorkerPool, timed
from harness.suite.schema import Limits

SQUARE = Stage(
    kind="square",
    takes=("number",),
    task=f"{__name__}:square",
    host="onnxruntime",
    failure=Outcome.RUN,
    seconds="squares",
    files=("square.txt",),
    notes=("digits",),
)


def square(folder, number):
    """Make an entry, in a worker process."""
    (folder / "square.txt").write_text(str(number**2))
    return {"digits": len(str(number**2))}


@pytest.fixture
def store(tmp_path):
    return Store(root=tmp_path / "store")


@pytest.fixture
def artifacts(store):
    pool = WorkerPool.of(Limits(timeout_s=200, jobs=1))
    yield Artifacts(store, pool, None)
    pool.close()


def test_a_stage_of_ones_own_is_run_once_by_a_worker_and_found_again(artifacts):
    def make():
        with timed() as seconds:
            return artifacts.make(SQUARE, 12, subject="12", label="12"), seconds

    (made, seconds), (again, none) = make(), make()

    assert made.file("square.txt").read_text() == "144"
    assert made.meta == {"digits": 3}
    assert again.path == made.path
    assert seconds["squares"] > 0
    assert none == {}


@pytest.mark.parametrize("lacks", ["digits", "square.txt"])
def test_an_entry_that_lacks_what_its_kind_has_is_refused_with_its_place(store, lacks):
    plain = SQUARE.of(files=(), notes=())
    entry = plain.make(store, lambda _: {}, 3)
    with pytest.raises(StoreError) as refused:
        SQUARE.find(store, 3)
    assert lacks in str(refused.value)
    assert str(entry.path) in str(refused.value)


def test_a_worker_whose_code_was_edited_makes_nothing(store):
    other = digest_value(SQUARE.of(code=("engine",)).key(3))
    with pytest.raises(StageError, match="own files were edited"):
        work(store.root, SQUARE, (3,), other, (3,))
    assert SQUARE.find(store, 3) is None


def test_what_a_stage_does_not_take_decides_nothing():
    with pytest.raises(SpecError, match="square"):
        SQUARE.key(3, 4)
