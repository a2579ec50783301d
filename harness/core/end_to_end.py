"""What an end-to-end case is: files of several components, run together.

A plug-in declares a kind of such cases, for example diffusion pipelines. The core asks
each case for its name, its checks and its parts, and runs the plug-in's functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias

from harness.core.case import Case, Component, Device, Sample

if TYPE_CHECKING:
    from harness.core.record import CaseRecord

SCHEDULE: Final = "schedule"
LATENTS: Final = "latents"
IMAGE: Final = "image"
PAIRS: Final = "pairs"
"""The check of many pictures, each from a pair of prompt and seed."""

WHATS: Final = (LATENTS, IMAGE)
"""The checks of an end-to-end case: the latents at every step, and the pictures."""

SQUARED: Final = ("ssim", "lpips", "dreamsim", "clip")
"""The built-in metrics whose definition grows with the square of a small error. Their
root is the error that is compared, because "four times the limit" means the error."""

MIXED: Final = "mixed"
"""The backend name of a case whose parts run in several runtimes."""

MATTERS: Final = 0.1
"""Share of the error that must disappear without an app's setting, so that the setting
is named as a cause. Several settings may each cause a part."""


class EndToEndCase(ABC):
    """Files of several components, run together and compared as a whole.

    Attributes:
        backend: Runtime of every part, or `MIXED`.
        variant: Variant of every part, or a name of the runtimes.
        device: Device of PyTorch.
        within: Names of `harness.core.record.SELF` by which its tolerances bound
            results.
        noun: What such a subject is called, for example ``pipeline``.
        prepare: ``module:function`` that is called with `harness.engine.artifacts` and
            the case. It makes what cases with the same `shared` need, and returns the
            store's entries of it.
        run: ``module:function`` that is called with these and a folder for pictures,
            and returns the fields of the case's record.
        needs: ``module:function`` that is called with the case, a
            `harness.engine.needs.TaskStep` and a function of weights, and yields the
            memory of each stage.

    """

    __slots__ = ()

    backend: str
    variant: str
    device: Device
    within: tuple[str, ...]
    noun: ClassVar[str]
    prepare: ClassVar[str]
    run: ClassVar[str]
    needs: ClassVar[str]

    @property
    @abstractmethod
    def subject(self) -> str:
        """First part of the id."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Case, ...]:
        """The case of each deployed file that it runs."""

    @property
    @abstractmethod
    def whats(self) -> tuple[str, ...]:
        """The checks of the case."""

    @property
    @abstractmethod
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that the case needs, each once."""

    @property
    @abstractmethod
    def stand_ins(self) -> tuple[str, ...]:
        """Stand-ins for real inputs, in order; see `harness.recipes.stand_ins`."""

    @property
    @abstractmethod
    def samples_alike(self) -> float:
        """About how many samples of its parts take as long as the case."""

    @abstractmethod
    def with_code(
        self,
        of_component: Callable[[Component], Component],
        of_case: Callable[[Case], Case],
    ) -> Self:
        """Return the case with what functions return of its components and parts."""

    def drawn(
        self,
        count: int,  # noqa: ARG002  # of a kind that draws inputs
        seed: int,  # noqa: ARG002
    ) -> Iterator[tuple[Sample, Self]]:
        """Yield the case on its own inputs and on so many others, and their names.

        What causes an error is not measured. A kind that draws nothing yields nothing.
        """
        yield from ()

    @property
    def shared(self) -> object:
        """What cases have in common that one preparation serves."""
        return self.subject, self.device

    @property
    def how(self) -> str:
        """Variant, the third part of the id."""
        return self.variant

    @property
    def id(self) -> str:
        """``subject/backend/variant``. ``-k`` selects cases by it."""
        return f"{self.subject}/{self.backend}/{self.variant}"

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets that its files run on, each once."""
        return tuple(
            dict.fromkeys(name for case in self.parts for name in case.targets)
        )


Tested: TypeAlias = Case | EndToEndCase
"""A case of a component, or an end-to-end case; it has an id and a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSetting:
    """A setting of an app whose value differs from the reference's.

    Attributes:
        name: Key of the setting under ``[pipeline.NAME.app]``.
        app: Value that the app uses.
        own: Value of the checkpoint, or of the pipeline.
        place: Place where `own` is written.
        share: Share of the pictures' squared error that this setting causes; 1 is all.

    """

    name: str
    app: float
    own: float
    place: str
    share: float = 0.0

    @property
    def words(self) -> str:
        """Message with both values and their places."""
        return (
            f"the app's {self.name} is {self.app:.6g}, {self.place} has {self.own:.6g}"
        )


def app_causes(record: CaseRecord) -> list[str]:
    """Return a message about each setting of the app that causes a part."""
    return [s.words for s in app_settings(record) if s.share >= MATTERS]


def app_settings(record: CaseRecord) -> list[AppSetting]:
    """Return the app's settings that differ from the reference's."""
    return [AppSetting(**each) for each in (record.pipeline or {}).get("app", ())]
