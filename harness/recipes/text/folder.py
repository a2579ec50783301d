"""What the folder of a transformers encoder says of itself, from configurations alone.

`save_pretrained` writes this folder: ``config.json``, weights and a tokenizer at its
root.
"""

from __future__ import annotations

import msgspec

from harness.core.case import ExportSettings, Source
from harness.core.errors import SuiteError
from harness.core.received import DamagedError, leads_inside, read_json
from harness.core.text import shortened
from harness.recipes.checkpoint import read_config

DEPLOYED = ExportSettings(
    exporter="torchscript",
    opset=14,
    dynamic=("batch", "tokens", "past"),
    attention="eager",
)
"""Default export settings of text encoders. Masked scaled_dot_product_attention would
use an operator against NaN that MNN lacks."""

_HEADS = {
    "ForQuestionAnswering": "question-answering",
    "ForSequenceClassification": "text-classification",
}

_FROM_PADDING_ON = (
    *("roberta", "camembert", "mpnet", "longformer", "data2vec", "ibert"),
    *("luke", "xmod"),
)
"""Parts of `model_type` of models whose positions begin after that of padding."""

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Names that configurations have for the number of positions."""


class _Module(msgspec.Struct):
    """One module of ``modules.json``: its class, and its folder."""

    type: str
    path: str


def is_encoder(source: Source) -> bool:
    """Whether the folder holds one network of transformers, and no pipeline.

    Raises:
        SuiteError: The network is in a subfolder, where sentence-transformers had it.

    """
    path = source.path
    if (path / "model_index.json").exists():
        return False
    if (path / "config.json").is_file() and "model_type" in read_config(source, ""):
        return True
    for kind, folder in sentence_modules(source):
        there = folder and (path / folder / "config.json").is_file()
        if kind == "Transformer" and there:
            msg = (
                f"{path} keeps its network in {folder}, as older sentence-transformers "
                f"did: give {path / folder} instead. To test its vectors too, list "
                '"pooling" under `components`, and under [component.pooling] set '
                '`pooling` to "mean" or "cls", and `normalize`, as the folders beside '
                "it say."
            )
            raise SuiteError(msg)
    return False


def tasks_of(source: Source) -> tuple[str, ...]:
    """Return the tasks of a checkpoint, from its configuration."""
    heads = [
        task
        for name in read_config(source, "").get("architectures") or ()
        for suffix, task in _HEADS.items()
        if name.endswith(suffix)
    ]
    pools = "Pooling" in [kind for kind, _ in sentence_modules(source)]
    return tuple(heads) or (("default", "pooling") if pools else ("default",))


def sentence_modules(source: Source) -> list[tuple[str, str]]:
    """Return kind and folder of each module that sentence-transformers would run.

    Raises:
        SuiteError: ``modules.json`` is there and cannot be understood.

    """
    path = source.path / "modules.json"
    if not path.is_file():
        return []
    try:
        listed = read_json(path, list[_Module])
    except (OSError, DamagedError) as error:
        msg = (
            f"{path} is not as sentence-transformers writes it ({error}); fetch it "
            "again."
        )
        raise SuiteError(msg) from None
    for one in listed:
        if one.path and not leads_inside(one.path):
            msg = (
                f"{path} names {shortened(one.path, 80)!r}, which is no folder beside "
                "it; fetch it again."
            )
            raise SuiteError(msg)
    return [(one.type.rpartition(".")[2], one.path) for one in listed]


def longest(source: Source) -> int | None:
    """Return the largest number of tokens; None if there is no table of positions."""
    config = read_config(source, "")
    positions = next((config[key] for key in _POSITIONS if key in config), None)
    if not isinstance(positions, int) or positions < 1:
        return None
    if any(name in str(config.get("model_type")) for name in _FROM_PADDING_ON):
        positions -= config.whole("pad_token_id", 0) + 1
    return max(1, positions)
