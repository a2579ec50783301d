"""`parity capture` of a script; `parity init` of calls and unknown checkpoints."""

from pathlib import Path

import diffusers
import pytest
import torch
import transformers

import harness
from tests.plugin.project import called

SCRIPT = """
import sys, torch

class Pipe:
    def __init__(self):
        self.net = torch.nn.Linear(4, int(sys.argv[1])).eval()

def main():
    pipe = Pipe()
    for _ in range(12):
        pipe.net(torch.randn(2, 4))

main()
"""
NETS = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval()
"""


def parity(*words):
    """Run a command in the current folder; return its exit code and what it said."""
    ended = called(Path.cwd(), *words)
    return ended.code, ended.text


def test_a_script_is_recorded_from_outside_and_becomes_a_suite(place):
    (place / "script.py").write_text(SCRIPT)
    (place / "my_nets.py").write_text(NETS)
    code, said = parity(
        "capture", "script.py", "3", "--module", "pipe.net", "--samples", "2"
    )
    assert (code, "wrote captured/net: 2 of 12 calls" in said) == (0, True), said

    code, said = parity("init", "captured")
    assert code == 2
    assert "add --module net=my_project.nets:make" in said

    code, said = parity("init", "captured", "--module", "net=my_nets:make")
    assert code == 0, said
    code, said = parity("run", "onnxruntime")
    assert "1 of 1 case agrees" in said


def test_a_name_that_the_script_never_has_is_refused(place):
    (place / "script.py").write_text(SCRIPT)
    code, said = parity("capture", "script.py", "3", "--module", "pipe.other")

    assert code == 2
    assert "there was no module 'pipe.other'" in said
    assert not (place / "captured").exists()


def test_calls_of_another_module_are_refused(place):
    net = torch.nn.Linear(4, 3).eval()
    with harness.capture(net=net) as calls:
        net(torch.randn(2, 4))
    calls.save("captured")
    (place / "my_nets.py").write_text(NETS.replace("4, 3", "4, 5"))
    parity("init", "captured", "--module", "net=my_nets:make")
    code, said = parity("run", "onnxruntime")

    assert code != 0
    assert "are of another module than 'my_nets:make' makes" in " ".join(said.split())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("{", "captured.json cannot be read"),
        ('{"format": 2}', "captured.json cannot be read"),
    ],
)
def test_damaged_calls_are_refused_by_one_sentence(damage, words, place):
    net = torch.nn.Linear(4, 3).eval()
    with harness.capture(net=net) as calls:
        net(torch.randn(2, 4))
    calls.save("captured")
    (place / "captured" / "net" / "captured.json").write_text(damage)
    code, said = parity("init", "captured", "--module", "net=my_nets:make")

    assert code == 2
    assert words in said


def unet_pipeline(folder):
    unet = diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=8,
        layers_per_block=1,
    )
    diffusers.DDPMPipeline(unet, diffusers.DDIMScheduler()).save_pretrained(folder)


def vision_model(folder):
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    )
    transformers.ViTModel(config).save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)


@pytest.mark.parametrize(
    ("make", "case"),
    [
        (unet_pipeline, "unet/onnxruntime/fp32"),
        (vision_model, "model/onnxruntime/fp32"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_checkpoint_that_no_recipe_knows_becomes_a_suite_that_agrees(make, case):
    torch.manual_seed(0)
    make("checkpoint")
    code, said = parity("init", "checkpoint")
    assert code == 0, said
    code, said = parity("run", case)

    assert "1 of 1 case agrees" in said


def test_code_that_a_checkpoint_brings_is_not_run(place):
    unet_pipeline("checkpoint")
    index = place / "checkpoint" / "model_index.json"
    index.write_text(index.read_text().replace('"diffusers"', '"evil"'))
    (place / "checkpoint" / "unet" / "evil.py").write_text("open('ran', 'w')")
    (place / "evil.py").write_text("open('ran', 'w')")
    code, _ = parity("init", "checkpoint")

    assert code == 2
    assert not (place / "ran").exists()
