"""Small text encoders of real architectures, as folders of configurations."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedTokenizerFast

from harness.core.case import Source

KINDS = (
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "mpnet",
    "electra",
    "deberta-v2",
)
_SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
    "initializer_range": 0.2,
}
_OWN: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "electra": {"embedding_size": 32},
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_encoder(folder: Path, kind: str, **changes) -> Source:
    """Write a configuration; weights are drawn from a seed."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {**_SIZES, **_OWN.get(kind, {}), **changes}
    AutoConfig.for_model(kind, **own).save_pretrained(folder)
    return Source(path=folder, seed=0)


def tokenizer_of(texts) -> PreTrainedTokenizerFast:
    """Return a tokenizer that knows the words of some texts."""
    words = {word for text in texts for word in text.lower().split()}
    ids = {word: index for index, word in enumerate((*_SPECIAL, *sorted(words)))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad", "unk", "cls", "sep"), _SPECIAL, strict=True))
    marks = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)


def write_tokenizer(folder: Path, texts) -> None:
    """Write such a tokenizer beside a configuration."""
    tokenizer_of(texts).save_pretrained(folder)
