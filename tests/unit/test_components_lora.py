"""A LoRA is merged before export, or refused with a way to merge it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from harness.components import describe, recipe_module
from harness.components.checkpoint import load_network
from harness.components.unet import network
from harness.errors import StageError, SuiteError
from harness.keys import checkpoint_digest
from harness.refusal import refuse_adapters
from harness.spec import Source
from harness.suite import load_suite
from tests.unit.nets import DIGITS

XL = Source(path=Path(__file__).parents[2] / "fixtures" / "sdxl", seed=0)
LAYER = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
CONV = "down_blocks.0.resnets.0.conv1"
RANK = 2


def halves(out=64, into=64, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    return (
        torch.randn(RANK, into, generator=drawn),
        torch.randn(out, RANK, generator=drawn),
    )


def saved(tmp_path, tensors, scale=1.0):
    path = tmp_path / "lora.safetensors"
    save_file(tensors, path)
    return replace(XL, lora=path, lora_scale=scale)


def in_pefts_words(prefix=f"unet.{LAYER}"):
    down, up = halves()
    return {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}


def unet(source):
    return load_network(source, "unet", network)


def weight(module, layer=LAYER):
    return module.get_submodule(layer).weight


@pytest.mark.parametrize(
    "names",
    [
        ("unet.{}", "lora_A", "lora_B"),
        ("unet.{}", "lora.down", "lora.up"),
        ("lora_unet_{}", "lora_down", "lora_up"),
    ],
    ids=["peft", "diffusers", "kohya"],
)
def test_what_was_learnt_is_added_to_the_weight(tmp_path, names):
    prefix, first, second = names
    down, up = halves()
    layer = LAYER.replace(".", "_") if "lora_unet" in prefix else LAYER
    begin = prefix.format(layer)
    source = saved(
        tmp_path, {f"{begin}.{first}.weight": down, f"{begin}.{second}.weight": up}
    )

    plain, merged = unet(XL), unet(source)

    torch.testing.assert_close(weight(merged), weight(plain) + up @ down)
    others = {name for name, _ in plain.named_parameters()} - {f"{LAYER}.weight"}
    for name in others:
        assert torch.equal(merged.get_parameter(name), plain.get_parameter(name))


def test_a_merged_network_computes_what_an_adapter_beside_it_does(tmp_path):
    """The low-rank way, as training ran it, and the merged way are one function."""
    source = saved(tmp_path, in_pefts_words(), scale=0.5)
    plain, merged = unet(XL), unet(source)
    down, up = halves()
    into = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))

    apart = plain.get_submodule(LAYER)(into) + 0.5 * into @ down.T @ up.T

    torch.testing.assert_close(merged.get_submodule(LAYER)(into), apart)


def test_alpha_over_rank_scales(tmp_path):
    tensors = {**in_pefts_words(), f"unet.{LAYER}.alpha": torch.tensor(1.0)}
    down, up = halves()

    merged = unet(saved(tmp_path, tensors))

    torch.testing.assert_close(weight(merged), weight(unet(XL)) + up @ down / RANK)


def test_convolutions_are_merged_too(tmp_path):
    down, up = torch.randn(RANK, 32, 3, 3), torch.randn(32, RANK, 1, 1)
    begin = f"unet.{CONV}"
    source = saved(
        tmp_path, {f"{begin}.lora_A.weight": down, f"{begin}.lora_B.weight": up}
    )

    learnt = torch.einsum("or,rihw->oihw", up[:, :, 0, 0], down)

    expected = weight(unet(XL), CONV) + learnt
    torch.testing.assert_close(weight(unet(source), CONV), expected)


def test_a_text_encoders_layers_are_found_under_their_old_name(tmp_path):
    layer = "encoder.layers.0.self_attn.q_proj"
    down, up = halves(32, 32)
    begin = f"text_encoder.text_model.{layer}"
    source = saved(
        tmp_path, {f"{begin}.lora_A.weight": down, f"{begin}.lora_B.weight": up}
    )

    def encoder(source):
        part = describe("text_encoder", "text_encoder", source)
        return recipe_module(part.recipe).build(part).network

    expected = weight(encoder(XL), layer) + up @ down
    torch.testing.assert_close(weight(encoder(source), layer), expected)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        (in_pefts_words("unet.no.such.layer"), "a LoRA of another model"),
        (in_pefts_words(f"unet.{CONV}"), "not have in that shape"),
        ({"unet.x.dora_scale": torch.ones(2)}, "save_lora_weights"),
        ({f"unet.{LAYER}.lora_A.weight": halves()[0]}, "one half of"),
    ],
    ids=["layer", "shape", "kind", "half"],
)
def test_a_lora_that_does_not_fit_is_refused(tmp_path, tensors, said):
    with pytest.raises(SuiteError, match=said):
        unet(saved(tmp_path, tensors))


def test_a_lora_is_part_of_what_the_store_knows(tmp_path):
    source = saved(tmp_path, in_pefts_words())
    digests = {
        checkpoint_digest(each, ("unet",))
        for each in (XL, source, replace(source, lora_scale=0.5))
    }

    assert len(digests) == 3


# Not merged


def test_a_checkpoint_with_adapters_is_refused_and_says_how_to_merge(tmp_path):
    (tmp_path / "unet").mkdir()
    config = (DIGITS / "unet" / "config.json").read_text()
    (tmp_path / "unet" / "config.json").write_text(config)
    tensors = {f"{LAYER}.base_layer.weight": torch.ones(2, 2)}
    save_file(tensors, tmp_path / "unet" / "model.safetensors")

    with pytest.raises(SuiteError, match=r"not merged .*base_layer.* pipe\.fuse_lora"):
        unet(Source(path=tmp_path))


class Adapted(torch.nn.Linear):
    """A layer as peft leaves it: two small ones beside it."""

    def __init__(self):
        super().__init__(4, 4)
        self.lora_A = torch.nn.ModuleDict(
            {"default": torch.nn.Linear(4, 2, bias=False)}
        )


def test_a_module_with_adapters_is_refused_and_says_how_to_merge():
    part = describe("unet", "unet", XL)

    with pytest.raises(StageError, match=r"unet has a LoRA .* pipe\.fuse_lora"):
        refuse_adapters(part, torch.nn.Sequential(Adapted()))
    refuse_adapters(part, torch.nn.Sequential(torch.nn.Linear(4, 4)))


def test_a_suite_names_its_lora(tmp_path):
    text = (XL.path / "parity.toml").read_text(encoding="utf-8")
    home = XL.path.as_posix()
    text = text.replace('checkpoint = "."', f'checkpoint = "{home}"\nlora = "a.st"')
    (tmp_path / "parity.toml").write_text(text)

    with pytest.raises(SuiteError, match=r"there is no file .*a\.st"):
        load_suite(tmp_path)
    (tmp_path / "a.st").touch()
    assert load_suite(tmp_path).source.lora == (tmp_path / "a.st").resolve()
