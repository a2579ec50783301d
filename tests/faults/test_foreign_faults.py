"""Files of other exporters with one thing otherwise: caught, with their reason.

The catalogue plants faults in exports of our own. What an exporter of others leaves out
or does otherwise shows in its own file alone, which is lined up with PyTorch's values.
"""

import warnings
from pathlib import Path

import pytest
import torch

from tests.faults.catalogue import foreign_nets
from tests.faults.stand import Stand
from tests.places import FIXTURES

pytestmark = pytest.mark.slow

HALF = "it takes every second place along axis 2, not one half"
REPEATED = "along axis 1 it does not write place 9, and 4 has what 9 gets"
FAULTS = {
    "operator-dropped": "tanh is not in the file",
    "module-dropped": "no operator of the file has the weights of post_quant_conv",
    "rotary-pairs": HALF,
    "rows-repeated": REPEATED,
    "another-epsilon": "epsilon is 0.001 in the graph, 1e-05 in PyTorch",
    "another-slope": "0.01 in the graph, 0.2 in PyTorch",
}
FALSE = ("fewer bits", "or other weights", "with other weights")
SUITE = """
components = ["net"]
[source]
checkpoint = "."
[[shapes]]
batch = 2
[inputs]
profiles = ["realistic"]
realistic = 2
more_sizes = false
[backend.onnxruntime]
[component.net]
recipe = "foreign_nets"
fault = "{fault}"
onnx = "net.onnx"
"""
TOLERANCES = '[{}]\noutputs = "standard"\nlayers = "standard"\n'


def export(exporter: str, fault: str, path: Path) -> None:
    """Write the file of the network that has the fault, as its author would."""
    net = foreign_nets.network(fault, right=False)
    shape = foreign_nets.PICTURE if fault in foreign_nets.OF_A_PICTURE else (2, 10, 16)
    example = torch.randn(2, *shape[1:])
    names = {"input_names": ["x"], "output_names": ["y"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            axes = {"x": {0: "batch"}, "y": {0: "batch"}}
            torch.onnx.export(
                *(net, (example,), path),
                dynamo=False,
                opset_version=17,
                dynamic_axes=axes,
                **names,
            )
        else:
            torch.onnx.export(
                *(net, (example,), path),
                dynamo=True,
                opset_version=18,
                external_data=False,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
                **names,
            )


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_with_one_thing_otherwise_has_its_reason(
    shared_store, tmp_path, fault, exporter
):
    export(exporter, fault, tmp_path / "net.onnx")
    recipe = Path(foreign_nets.__file__).read_text(encoding="utf-8")
    (tmp_path / "foreign_nets.py").write_text(recipe, encoding="utf-8")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "parity.toml").write_text(SUITE.format(fault=fault))
    (tmp_path / "tolerances.toml").write_text(TOLERANCES.format("onnxruntime.given"))

    with Stand(shared_store, suite=tmp_path / "parity.toml") as stand:
        trial = stand.run(stand.case("net", "onnxruntime", "given"))

    assert trial.caught
    assert FAULTS[fault] in trial.said
    assert not [words for words in FALSE if words in trial.said]


WITH_LORA = """
components = ["unet"]
[source]
checkpoint = "{checkpoint}"
seed = 0
{lora}
[export]
dynamic_axes = []
[[shapes]]
batch = 1
height = 8
width = 8
[inputs]
profiles = ["realistic"]
realistic = 1
more_sizes = false
[backend.onnxruntime]
[component.unet]
folder = "unet_wide"
"""


@pytest.fixture
def lora_stand(shared_store, tmp_path):
    """Return a stand whose network has a LoRA at a scale, or none."""
    stands = []

    def of(scale):
        file = FIXTURES / "lora" / "lora.safetensors"
        lora = f'lora = "{file}"\nlora_scale = {scale}' if scale else ""
        text = WITH_LORA.format(checkpoint=FIXTURES / "channels", lora=lora)
        folder = tmp_path / str(scale)
        folder.mkdir()
        (folder / "parity.toml").write_text(text)
        bounds = TOLERANCES.format("onnxruntime.fp32")
        (folder / "tolerances.toml").write_text(bounds)
        stands.append(Stand(shared_store, suite=folder / "parity.toml"))
        return stands[-1]

    yield of
    for stand in stands:
        stand.close()


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (0.0, "and the graph has them without it"),
        (0.4, "and the graph has it at a scale of 0.4, not 0.8"),
    ],
)
def test_a_file_with_a_lora_at_another_scale_has_its_reason(lora_stand, scale, words):
    right, wrong = lora_stand(0.8), lora_stand(scale)
    case = right.case("unet", "onnxruntime")
    graph, _ = wrong.exported(wrong.case("unet", "onnxruntime"))

    trial = right.run(case, lambda: right.deployed(case, graph), altered=graph)

    assert trial.caught
    assert words in trial.said
