"""A project with a tiny pipeline: the digits' checkpoint, reduced to milliseconds.

Weights are drawn from a seed, so pictures are noise. The noise is the same in every
runtime, and a pipeline's cases compare exactly this.
"""

import json
import shutil

from tests.places import DIGITS
from tests.plugin.project import TEST_FILE, Project

PIPELINE = "text2img"
ONNXRUNTIME = f"{PIPELINE}/onnxruntime/fp32"
MNN = f"{PIPELINE}/mnn/fp32"
COMPONENT = "vae_decoder/onnxruntime/fp32"
STEPS = 3
SHRUNK = {
    "unet": {
        "block_out_channels": [8],
        "down_block_types": ["CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D"],
        "cross_attention_dim": 16,
        "attention_head_dim": 2,
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "sample_size": 8,
    },
    "vae": {
        "block_out_channels": [8, 8],
        "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
        "mid_block_add_attention": False,
        "norm_num_groups": 4,
        "sample_size": 16,
    },
    "text_encoder": {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "projection_dim": 16,
    },
}
PIPELINES = f"""
[pipeline.{PIPELINE}]
prompts = ["a seven in red ink on white paper"]
height = 16
width = 16
steps = {STEPS}
guidance_scale = 3.0
"""
SUITE = f"""\
components = ["vae_decoder"]

[source]
checkpoint = "checkpoint"
seed = 0

[export]
exporter = "torchscript"
dynamic_axes = []

[[shapes]]
batch = 1
height = 8
width = 8

[inputs]
profiles = ["realistic"]
realistic = 1

[backend.onnxruntime]
variants = ["fp32"]

[backend.mnn]
variants = ["fp32"]

[component.text_encoder]
attention = "eager"

[limits]
coverage = 0.5
timeout_s = 120
{PIPELINES}"""
TOLERANCES = """\
[onnxruntime.fp32]
outputs = "standard"
layers = "standard"
latents = "standard"
image = "standard"

[mnn.fp32]
outputs = "standard"
layers = "standard"
latents = "standard"
image = "standard"
"""


def write_drawing(folder):
    """Write the project, with its configurations, its tokenizer and no weights."""
    for name, changes in SHRUNK.items():
        there = folder / "checkpoint" / name
        there.mkdir(parents=True)
        config = json.loads((DIGITS / name / "config.json").read_text())
        (there / "config.json").write_text(json.dumps({**config, **changes}))
    for name in ("scheduler", "tokenizer"):
        shutil.copytree(DIGITS / name, folder / "checkpoint" / name)
    shutil.copy(DIGITS / "model_index.json", folder / "checkpoint")
    (folder / "parity.toml").write_text(SUITE)
    (folder / "tolerances.toml").write_text(TOLERANCES)
    (folder / "test_parity.py").write_text(TEST_FILE)
    return Project(folder)


def pipeline(name, *lines):
    """Return one more table: the same drawing, and what the lines say of it."""
    _, _, rest = PIPELINES.partition(f"[pipeline.{PIPELINE}]\n")
    return "\n".join((f'\n[pipeline.{name}]\nkind = "text2img"', *lines, rest))


WRONG = "app = { scaling_factor = 0.3 }"
"""As if the app had another autoencoder's factor: only the picture is off."""

READER = '''\
"""Says what a picture shows."""


def total(picture):
    return int(picture.sum())


def fails(picture):
    raise ValueError(f"no digit in {picture.shape}")
'''
GAPS = """\
[[gap]]
case = "known/onnxruntime/fp32/image"
outcome = "exceeds"
why = "another autoencoder's factor"

[[gap]]
case = "stale/onnxruntime/fp32/latents"
outcome = "exceeds"
why = "it did"
"""
TIGHT = """
[tight.onnxruntime.fp32]
latents = "exact"

[tight.onnxruntime.fp32.probes."embeddings"]
latents = "standard"
why = "so that the first step is the first to part"
"""


def write_wrong(folder):
    """Write a project of pipelines that go wrong, each in a way of its own."""
    project = write_drawing(folder)
    project.only_onnxruntime()
    wrong = (
        pipeline("tight"),
        pipeline("scaled", WRONG),
        pipeline("known", WRONG),
        pipeline("stale", WRONG, "attribution = false"),
        pipeline("shifted", "app = { scheduler_options = { steps_offset = 0 } }"),
        pipeline("misread", WRONG, 'reader = "reader.py:total"'),
        pipeline("unread", 'reader = "reader.py:fails"'),
    )
    project.add("parity.toml", "".join(wrong))
    project.add("tolerances.toml", TIGHT)
    (folder / "reader.py").write_text(READER)
    (folder / "known_gaps.toml").write_text(GAPS)
    return project
