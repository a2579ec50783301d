"""A LoRA is merged before export, or refused with a way to merge it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from harness.core.case import Source
from harness.core.errors import StageError, SuiteError
from harness.engine.keys import checkpoint_digest
from harness.recipes import describe, recipe_module
from harness.recipes.checkpoint import load_network
from harness.runtimes.pytorch.export_errors import refuse_adapters
from harness.runtimes.pytorch.prepare import weigh
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES

LORA = FIXTURES / "lora"
XL = Source(path=FIXTURES / "sdxl", seed=0)
LAYER = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
CONV = "down_blocks.0.resnets.0.conv1"
RANK = 2


def halves(out=64, into=64, seed=0):
    drawn = torch.Generator().manual_seed(seed)
    return (
        torch.randn(RANK, into, generator=drawn),
        torch.randn(out, RANK, generator=drawn),
    )


def saved(tmp_path, tensors, scale=1.0, of=XL, **told):
    """Save a LoRA, with what its header says that peft was told."""
    path = tmp_path / "lora.safetensors"
    header = {"lora_adapter_metadata": json.dumps(told)} if told else None
    save_file(tensors, path, header)
    return replace(of, lora=path, lora_scale=scale)


def in_pefts_words(prefix=f"unet.{LAYER}", out=64, into=64):
    down, up = halves(out, into)
    return {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}


def in_kohyas_words(layer, out=64, into=64):
    down, up = halves(out, into)
    begin = f"lora_unet_{layer}"
    return {f"{begin}.lora_down.weight": down, f"{begin}.lora_up.weight": up}


def unet(source):
    return load_network(source, "unet", "UNet2DConditionModel")


def weight(module, layer=LAYER):
    return module.get_submodule(layer).weight


@pytest.mark.parametrize(
    "names",
    [
        ("unet.{}", "lora_A", "lora_B"),
        ("unet.{}", "lora.down", "lora.up"),
        ("lora_unet_{}", "lora_down", "lora_up"),
        ("{}", "lora_A", "lora_B"),
    ],
    ids=["peft", "diffusers", "kohya", "bare"],
)
def test_what_was_learnt_is_added_to_the_weight(tmp_path, names):
    prefix, first, second = names
    down, up = halves()
    layer = LAYER.replace(".", "_") if "lora_unet" in prefix else LAYER
    begin = prefix.format(layer)
    tensors = {f"{begin}.{first}.weight": down, f"{begin}.{second}.weight": up}

    plain, merged = unet(XL), unet(saved(tmp_path, tensors, scale=0.5))

    torch.testing.assert_close(weight(merged), weight(plain) + 0.5 * up @ down)
    others = {name for name, _ in plain.named_parameters()} - {f"{LAYER}.weight"}
    for name in others:
        assert torch.equal(merged.get_parameter(name), plain.get_parameter(name))


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


# How much of it


@pytest.mark.parametrize(
    ("told", "share"),
    [
        ({"unet.lora_alpha": 1, "unet.r": RANK}, 0.5),
        ({"lora_alpha": 4.0, "r": RANK}, 2.0),  # of one network, as it saves its own
        ({"unet.lora_alpha": 4, "unet.alpha_pattern": {"attn1.to_q": 1}}, 0.5),
        ({"unet.lora_alpha": 4, "unet.alpha_pattern": {"attn2.to_q": 1}}, 2.0),
        ({"unet.lora_alpha": 2, "unet.use_rslora": True}, 2 / RANK**0.5),
        ({"text_encoder.lora_alpha": 8, "text_encoder.r": RANK}, 1.0),
        # A rank of its own is that of its matrices.
        ({"unet.lora_alpha": 4, "unet.r": 16, "unet.rank_pattern": {LAYER: RANK}}, 2.0),
    ],
)
def test_what_the_header_says_of_alpha_is_read(tmp_path, told, share):
    down, up = halves()

    merged = unet(saved(tmp_path, in_pefts_words(), **told))

    torch.testing.assert_close(weight(merged), weight(unet(XL)) + share * up @ down)


def test_a_header_that_cannot_be_read_is_refused(tmp_path):
    source = saved(tmp_path, in_pefts_words())
    save_file(in_pefts_words(), source.lora, {"lora_adapter_metadata": "{"})

    with pytest.raises(SuiteError, match=r"the header of .*cannot be read"):
        unet(source)


def test_pefts_own_files_have_their_scale_beside_them(tmp_path):
    source = saved(tmp_path, in_pefts_words(f"base_model.model.{LAYER}"))
    down, up = halves()
    with pytest.raises(SuiteError, match=r"adapter_config\.json, which is missing"):
        unet(source)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps({"r": RANK, "lora_alpha": 6}))

    torch.testing.assert_close(weight(unet(source)), weight(unet(XL)) + 3.0 * up @ down)
    first = checkpoint_digest(source, ("unet",))
    config.write_text(json.dumps({"r": RANK, "lora_alpha": 5}))
    checkpoint_digest.cache_clear()
    assert checkpoint_digest(source, ("unet",)) != first


# Whose it is


FLUX = Source(path=XL.path.parent / "flux", seed=0)
SD3 = Source(path=XL.path.parent / "sd3", seed=0)


def transformer(source):
    part = describe("transformer", "transformer", source)
    return recipe_module(part.recipe).build(part).network


@pytest.mark.parametrize(
    ("source", "tensors", "said"),
    [
        (FLUX, in_pefts_words(), "for a unet, and the checkpoint has .*transformer"),
        (SD3, in_kohyas_words("joint_blocks_0_x_block_attn_qkv"), "pipe.fuse_lora"),
        (FLUX, in_kohyas_words("double_blocks_0_no_such"), "cannot rename .*fuse_lora"),
        (XL, in_pefts_words("transformer.x_embedder"), "for a transformer, and the"),
        (XL, in_pefts_words("text_encoder_3.wo"), "for a text_encoder_3, and the"),
        (XL, in_kohyas_words("input_blocks_x_0_y"), "cannot rename .*fuse_lora"),
        (XL, in_kohyas_words("input_blocks_1_0_no_such"), "a LoRA of another model"),
        (XL, {}, "no weights in it"),
        (XL, in_pefts_words("unet.no.such.layer"), "a LoRA of another model"),
        (XL, in_pefts_words(f"unet.{CONV}"), "not have in that shape"),
        (XL, {"unet.x.dora_scale": torch.ones(2)}, "save_lora_weights"),
        (XL, {f"unet.{LAYER}.lora_A.weight": halves()[0]}, "one half of"),
    ],
)
def test_a_lora_that_does_not_fit_is_refused(tmp_path, source, tensors, said):
    build = unet if source is XL else transformer

    with pytest.raises(SuiteError, match=said):
        build(saved(tmp_path, tensors, of=source))


def test_what_is_of_another_network_is_left_to_it(tmp_path):
    other = in_pefts_words("text_encoder_2.encoder.layers.0.self_attn.q_proj", 48, 48)
    source = saved(tmp_path, other)

    plain, merged = unet(XL), unet(source)

    for name, value in plain.named_parameters():
        assert torch.equal(merged.get_parameter(name), value)


def test_the_side_of_a_matrix_is_looked_at(tmp_path):
    layer = "mid_block.attentions.0.transformer_blocks.0.attn2.to_k"
    plain = weight(unet(XL), layer)
    out, into = plain.shape
    assert out != into

    turned = in_pefts_words(f"unet.{layer}", into, out)
    with pytest.raises(SuiteError, match="not have in that shape"):
        unet(saved(tmp_path, turned))


# In kohya's names of the networks before diffusers

ORIGINAL = {
    "input_blocks_3_1_transformer_blocks_0_attn1_to_q": (
        "down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q"
    ),
    "input_blocks_3_1_transformer_blocks_0_attn2_to_out_0": (
        "down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_out.0"
    ),
    "input_blocks_3_1_transformer_blocks_0_ff_net_0_proj": (
        "down_blocks.1.attentions.0.transformer_blocks.0.ff.net.0.proj"
    ),
    "input_blocks_3_1_proj_in": "down_blocks.1.attentions.0.proj_in",
    "input_blocks_1_0_emb_layers_1": "down_blocks.0.resnets.0.time_emb_proj",
    "middle_block_1_transformer_blocks_1_attn1_to_v": (
        "mid_block.attentions.0.transformer_blocks.1.attn1.to_v"
    ),
    "middle_block_2_emb_layers_1": "mid_block.resnets.1.time_emb_proj",
    "output_blocks_1_1_proj_out": "up_blocks.0.attentions.1.proj_out",
    "output_blocks_2_1_transformer_blocks_0_ff_net_2": (
        "up_blocks.1.attentions.0.transformer_blocks.0.ff.net.2"
    ),
    "time_embed_0": "time_embedding.linear_1",
    "label_emb_0_2": "add_embedding.linear_2",
}


def test_kohyas_names_of_an_original_unet_are_found(tmp_path):
    plain = unet(XL)
    tensors: dict[str, torch.Tensor] = {}
    learnt = {}
    for seed, (name, layer) in enumerate(ORIGINAL.items()):
        out, into = weight(plain, layer).shape
        down, up = halves(out, into, seed)
        learnt[layer] = up @ down / 4
        begin = f"lora_unet_{name}"
        tensors |= {
            f"{begin}.lora_down.weight": down,
            f"{begin}.lora_up.weight": up,
            f"{begin}.alpha": torch.tensor(RANK / 4),
        }

    merged = unet(saved(tmp_path, tensors))

    for name, value in plain.named_parameters():
        added = learnt.get(name.removesuffix(".weight"), 0.0)
        torch.testing.assert_close(merged.get_parameter(name), value + added)


def test_kohyas_names_of_flux_are_found_and_cut(tmp_path):
    tensors = in_kohyas_words("double_blocks_1_img_attn_qkv", 3 * 64)
    tensors |= in_kohyas_words("double_blocks_0_img_attn_proj")
    down, up = halves(3 * 64)
    whole = up @ down
    block = "transformer_blocks.1.attn.to_"

    plain, merged = transformer(FLUX), transformer(saved(tmp_path, tensors, of=FLUX))

    for part, added in zip("qkv", whole.chunk(3), strict=True):
        expected = weight(plain, block + part) + added
        torch.testing.assert_close(weight(merged, block + part), expected)
    layer = "transformer_blocks.0.attn.to_out.0"
    down, up = halves()
    torch.testing.assert_close(weight(merged, layer), weight(plain, layer) + up @ down)


def test_a_text_model_alone_takes_what_peft_saved_of_it_with_its_head(tmp_path):
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = BertConfig(**small, intermediate_size=16, vocab_size=20)
    (tmp_path / "bert").mkdir()
    config.save_pretrained(tmp_path / "bert")
    bert = Source(path=tmp_path / "bert", seed=0)
    layer = "encoder.layer.0.attention.self.query"
    keys = in_pefts_words(f"base_model.model.bert.{layer}", 32, 32)
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 2}')
    down, up = halves(32, 32)

    plain, merged = (
        load_network(source, "", BertModel)
        for source in (bert, saved(tmp_path, keys, of=bert))
    )

    torch.testing.assert_close(weight(merged, layer), weight(plain, layer) + up @ down)


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
    save_file(in_pefts_words(), tmp_path / "a.st")
    assert load_suite(tmp_path).source.lora == (tmp_path / "a.st").resolve()


def test_a_lora_of_what_is_not_tested_is_refused(tmp_path):
    text = (LORA / "parity.toml").read_text(encoding="utf-8")
    home = LORA.parent.as_posix()
    text = text.replace('"../', f'"{home}/').replace('["unet"]', '["vae_decoder"]')
    text = text.replace('"lora.safetensors"', f'"{home}/lora/lora.safetensors"')
    (tmp_path / "parity.toml").write_text(text.partition("[component.unet]")[0])

    with pytest.raises(SuiteError, match=r"toml:\d+: .*adapts unet, of which nothing"):
        load_suite(tmp_path)


def test_a_checkpoint_is_another_at_each_scale(tmp_path):
    source = saved(tmp_path, in_pefts_words())
    checkpoints = XL, source, replace(source, lora_scale=0.5)

    assert len({checkpoint_digest(one, ("unet",)) for one in checkpoints}) == 3


def test_it_adds_no_weight():
    def part(suite, name):
        return next(one for one in suite.components if one.name == name)

    suite = load_suite(LORA)
    unet = part(suite, "unet")
    plain = part(load_suite(FIXTURES / "channels"), "unet_wide")

    assert len(suite.cases) == 2
    assert unet.source.lora is not None
    assert weigh(Path(), unet) == weigh(Path(), plain)
