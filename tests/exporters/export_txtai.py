"""Export a small seeded BERT with txtai; runs in an environment of its own.

python export_txtai.py OUT
"""

import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
from txtai.pipeline import HFOnnx

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "test", "inputs", "seven", "ink"]
TASKS = ("default", "pooling", "text-classification")


def main(out: Path) -> None:
    """Write the model and an ONNX file for each task."""
    model = out / "model"
    model.mkdir(parents=True)
    (model / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_attention_heads=2,
        num_hidden_layers=2,
        max_position_embeddings=32,
        num_labels=3,
    )
    BertForSequenceClassification(config).eval().save_pretrained(model)
    BertTokenizerFast(vocab_file=str(model / "vocab.txt")).save_pretrained(model)
    for task in TASKS:
        HFOnnx()(str(model), task, output=str(out / f"{task}.onnx"))


main(Path(sys.argv[1]))
