"""The tasks of a text encoder that differ only in the head.

`DEFAULT` returns the hidden state of every token. `CLASSIFICATION` also serves
zero-shot classification. `QUESTION_ANSWERING` finds the start and end of an answer in a
text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.case import Component, Source
from harness.core.errors import SuiteError
from harness.recipes.text import encoder
from harness.recipes.text.sample_texts import (
    CLAIMS,
    QUESTIONS,
    SENTENCES,
    Text,
    tokenised,
)
from harness.recipes.types import Drawn, Options, Rng, Signature, Sizes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTask:
    """The recipe of one task.

    Attributes:
        outputs: Function that returns the shape of each output, by name.
        network: Name of the Auto class of transformers that builds it.
        texts: Texts that realistic samples use in turn.

    """

    outputs: Callable[[Source], dict[str, tuple[int | str, ...]]]
    network: str
    texts: tuple[Sequence[Text], ...]

    def signature(self, source: Source, options: Options) -> Signature:
        """Return the signature: token ids to the outputs of the task.

        Raises:
            SuiteError: An option is unknown, or the network has no such head.

        """
        return encoder.signature(source, options, self.outputs(source))

    def build(self, component: Component, attention: str = "") -> torch.nn.Module:
        """Return the encoder with its head; without a head, also without its pooler."""
        headless = self.network == "AutoModel"
        network = encoder.load(component, self.network, attention, headless=headless)
        return encoder.wrap(component, network, *self.outputs(component.source))

    def realistic(
        self, component: Component, shapes: Sizes, step: int, rng: Rng
    ) -> Drawn:
        """Draw texts, cut or padded."""
        texts = self.texts[step % len(self.texts)]
        return tokenised(component, shapes, texts, step, rng)


def _hidden_states(source: Source) -> dict[str, tuple[int | str, ...]]:
    return {"last_hidden_state": ("batch", "tokens", encoder.width_of(source))}


def _logits(source: Source) -> dict[str, tuple[int | str, ...]]:
    return {"logits": ("batch", encoder.labels_of(source))}


def _answers(source: Source) -> dict[str, tuple[int | str, ...]]:
    if (labels := encoder.labels_of(source)) != 2:  # noqa: PLR2004  # start and end
        msg = (
            f"question-answering needs a head of 2 labels, start and end; "
            f"{source.path / 'config.json'} has {labels}."
        )
        raise SuiteError(msg)
    return dict.fromkeys(("start_logits", "end_logits"), ("batch", "tokens"))


DEFAULT = TextTask(outputs=_hidden_states, network="AutoModel", texts=(SENTENCES,))
CLASSIFICATION = TextTask(
    outputs=_logits,
    network="AutoModelForSequenceClassification",
    texts=(CLAIMS, SENTENCES),
)
QUESTION_ANSWERING = TextTask(
    outputs=_answers, network="AutoModelForQuestionAnswering", texts=(QUESTIONS,)
)
