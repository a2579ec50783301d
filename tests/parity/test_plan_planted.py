"""A block that bears no integers is found and kept, in twenty small networks.

One engine plans them all: a command for each would start its processes anew.
"""

import pytest

from harness.commands.progress import shown_engine
from harness.core.rounding import HALF
from harness.plugins.plan.command import bound_of
from harness.plugins.plan.place import place_of
from harness.plugins.plan.run import Planner
from harness.suite.suite import load_suite
from tests.plugin.planted import BOUND, write_planted

pytestmark = pytest.mark.plan

PLANTS = ("activations", "outlier", "activations and outlier")
NETWORKS = {
    f"net{seed:02}": {
        "plant": PLANTS[seed % 3],
        "at": seed // 3 % 3,
        "width": 24 + 8 * (seed % 4),
        "seed": seed,
    }
    for seed in range(20)
}
CASES = [
    pytest.param(name, id=f"{name}-{one['plant']}-in-{one['at']}".replace(" ", "-"))
    for name, one in NETWORKS.items()
]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The suite, and the engine that plans its networks."""
    folder = tmp_path_factory.mktemp("planted")
    suite = load_suite(write_planted(folder / "suite", NETWORKS))
    with shown_engine(suite, str(folder / "store")) as engine:
        yield suite, engine


@pytest.mark.parametrize("backend", ["onnxruntime", "mnn"])
@pytest.mark.parametrize("name", CASES)
def test_the_planted_block_alone_gets_no_integers(started, name, backend):
    what, bound = bound_of(BOUND)
    place = place_of(*started, name, backend, what=what, bound=bound)
    planner = Planner(place, lambda _: None)

    found = planner.plan("planned", "planned.json", unseen=1)

    kept = [
        layer.name
        for layer, bits in zip(found.layers, found.bits, strict=True)
        if bits >= HALF
    ]
    assert kept == [f"blocks.{NETWORKS[name]['at']}"]
    assert found.planned.passed
    assert not any(one.passed for name, one in found.uniform.items() if name != "fp32")
