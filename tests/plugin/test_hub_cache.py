"""A hub id as a source, from a cache in the layout of huggingface_hub."""

import hashlib

import pytest

from harness.recipes.text.sample_texts import SENTENCES
from tests.plugin.project import CONFIG, PARITY, TOLERANCES, Project
from tests.unit.encoders import write_encoder, write_tokenizer

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SUITE = """\
components = ["{component}"]

[source]
hub = "org/{name}"

[export]
exporter = "torchscript"
opset = 17

[[shapes]]
{sizes}

[inputs]
profiles = ["realistic"]
realistic = 1
more_sizes = false

[backend.onnxruntime]
variants = ["fp32"]
"""
TEXT = {"name": "encoder", "component": "default", "sizes": "batch = 2\ntokens = 9"}
PICTURES = {
    "name": "pictures",
    "component": "vae_decoder",
    "sizes": "batch = 1\nheight = 8\nwidth = 8",
}


def cached(hub, folder, name):
    """Put a folder into a hub cache: files by digest, names that link to them."""
    home = hub / f"models--org--{name}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    (home / "blobs").mkdir()
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        blob = home / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        link = home / "snapshots" / COMMIT / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)


def write_text_model(folder):
    from transformers import AutoConfig, AutoModel

    source = write_encoder(folder, "bert")
    write_tokenizer(folder, SENTENCES)
    config = AutoConfig.from_pretrained(source.path)
    AutoModel.from_config(config).save_pretrained(folder)


def write_pictures(folder):
    from diffusers import AutoencoderKL

    AutoencoderKL.from_config(CONFIG).save_pretrained(folder / "vae")
    (folder / "model_index.json").write_text("{}")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A cache with a text model, a diffusers checkpoint, and half of a model."""
    base = tmp_path_factory.mktemp("hub")
    write_text_model(base / "text")
    write_pictures(base / "pictures")
    cached(base / "cache", base / "text", "encoder")
    cached(base / "cache", base / "pictures", "pictures")
    (base / "text" / "model.safetensors").unlink()
    cached(base / "cache", base / "text", "half")
    return base / "cache"


@pytest.fixture
def suite(hub, store, tmp_path, monkeypatch):  # noqa: ARG001  # artifacts go there
    """Write a suite, and stay off the network, which a new process alone learns."""
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def write(told):
        (tmp_path / "parity.toml").write_text(SUITE.format(**told))
        bounds = TOLERANCES.partition("[mnn.fp32]")[0]
        (tmp_path / "tolerances.toml").write_text(bounds)
        return Project(tmp_path)

    return write


@pytest.mark.parametrize("told", [TEXT, PICTURES], ids=lambda told: told["name"])
def test_a_suite_runs_from_the_cache_without_a_network(suite, told):
    project = suite(told)
    project.run(*PARITY, "run").check(0)
    assert set(project.outcomes.values()) == {"within"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "'org/gone' is not in the Hugging Face cache"),
        ("half", "the Hugging Face cache has no *.safetensors of 'org/half'"),
    ],
)
def test_without_it_the_refusal_has_the_next_command(suite, name, said):
    ended = suite(TEXT | {"name": name}).run(*PARITY, "run")
    ended.check(2, said, f"run `hf download org/{name}`")
    assert len(ended.text.strip().splitlines()) == 1


def test_drawn_weights_want_configurations_alone(suite):
    project = suite(TEXT | {"name": "half"})
    project.change("parity.toml", "[source]\n", "[source]\nseed = 0\n")
    project.run(*PARITY, "run", "--forecast").check(0)
