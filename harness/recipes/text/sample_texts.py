"""Texts for encoders, and functions that make token ids from them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.case import Component, Source
from harness.recipes.checkpoint import read_config
from harness.recipes.tokenizer import load_tokenizer
from harness.recipes.types import Drawn, Rng, Sizes

Text = str | tuple[str, str]

SENTENCES: Sequence[Text] = (
    "How do I reset my password?",
    "Steps to change a forgotten password",
    "The cat sleeps on the warm window sill.",
    "A kitten is napping by the window",
    "Shares fell after the central bank raised interest rates.",
    "Rain",
    "Wet and windy tomorrow, heavy showers over the hills, a cold front by evening.",
    "Can I return shoes that do not fit, and who pays for the parcel?",
)
"""Sentences of different lengths; a few have the same meaning, most do not."""

QUESTIONS: Sequence[Text] = (
    ("Who wrote the letter?", "The letter was written by Ada in the spring of 1843."),
    ("Where does the river end?", "From the hills it flows north into the grey sea."),
    ("When was the bridge built?", "Two years after the flood, in 1911."),
    (
        "What do bees carry?",
        "They leave the hive early, visit clover, and bring pollen home on their legs.",
    ),
    ("How many?", "Seven."),
)
"""Pairs of a question and the text that answers it."""

CLAIMS: Sequence[Text] = (
    ("A man plays a guitar on stage.", "Somebody is making music."),
    ("Two dogs run through deep snow.", "The dogs are asleep."),
    ("The parcel came a week late and broken.", "This text is about delivery."),
    ("No", "Yes"),
    (
        "After a long debate the council voted to plant trees along every wide street.",
        "The council talked about trees.",
    ),
)
"""Pairs of premise and hypothesis, for inference (NLI) and zero-shot labels."""


def tokenised(
    component: Component, shapes: Sizes, texts: Sequence[Text], step: int, rng: Rng
) -> Drawn:
    """Return int32 inputs ``[batch, tokens]``, each text cut or padded to that length.

    Args:
        component: The component, whose inputs are drawn. With the option ``masked``
            the last item's mask is all zeros.
        shapes: Sizes of ``batch`` and ``tokens``.
        texts: The texts, one for each item, from `step` on. Repeated texts get a
            number.
        step: Index of the sample.
        rng: The random generator, which draws words if there is no tokenizer.

    """
    import numpy as np

    batch, tokens = shapes["batch"], shapes["tokens"]
    chosen = [_numbered(texts, step + item, step) for item in range(batch)]
    tokenizer = load_tokenizer(component.source.path)
    if tokenizer is None:
        encoded = _drawn(component.source, chosen, tokens, rng)
    else:
        firsts, seconds = zip(*map(_parts, chosen), strict=True)
        encoded = tokenizer(
            list(firsts),
            list(seconds) if any(seconds) else None,
            padding="max_length",
            max_length=tokens,
            truncation=True,
            return_token_type_ids=True,
            return_attention_mask=True,
        )
    arrays = {
        spec.name: np.asarray(encoded[spec.name], dtype=np.int32)
        for spec in component.inputs
    }
    if dict(component.options).get("masked"):
        arrays["attention_mask"][-1] = 0
    return arrays


def _numbered(texts: Sequence[Text], index: int, step: int) -> Text:
    """Return a text; a text that is repeated in a batch gets a number."""
    text, again = texts[index % len(texts)], (index - step) // len(texts)
    if not again:
        return text
    first, second = _parts(text)
    return (f"{again} {first}", second) if second else f"{again} {first}"


def _parts(text: Text) -> tuple[str, str]:
    return (text, "") if isinstance(text, str) else text


def _drawn(source: Source, texts: Sequence[Text], tokens: int, rng: Rng) -> Drawn:
    """Draw an id for each word of the texts, and pad on the right."""
    import numpy as np

    config = read_config(source, "")
    shape = (len(texts), tokens)
    pad = max(config.whole("pad_token_id", 0), 0)
    # Words are above the padding, unless it is near the end of the vocabulary.
    first_word = pad + 1 if pad < config["vocab_size"] // 2 else 0
    ids = np.full(shape, pad)
    mask, segments = np.zeros(shape), np.zeros(shape)
    for item, text in enumerate(texts):
        first, second = (len(part.split()) for part in _parts(text))
        filled = min(first + second + 2, tokens)  # markers at the begin and the end
        words = rng.integers(first_word, config["vocab_size"], size=filled)
        ids[item, :filled] = np.where(words == pad, first_word, words)
        mask[item, :filled] = 1
        segments[item, first + 1 : filled] = 1 if second else 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
