"""What an app sets otherwise than the checkpoint: told by name, and tried without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.core.pipeline import Pipeline

DECIDES = 0.9
"""A setting is the cause if so much of the error's power goes with it."""

_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A number that an app has and the reference has otherwise.

    Attributes:
        name: As it is written under ``[pipeline.NAME.app]``.
        app: The app's.
        own: The checkpoint's, or the pipeline's.
        place: Where that stands.
        share: Of the pictures' squared error, what goes with it; 1 is all.

    """

    name: str
    app: float
    own: float
    place: str
    share: float = 0.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setting:
        """Read what `to_json` wrote."""
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def words(self) -> str:
        """Return both values and their places."""
        return (
            f"the app's {self.name} is {self.app:.6g}, {self.place} has {self.own:.6g}"
        )


def other_settings(pipeline: Pipeline, scaling_factor: float) -> Iterator[Setting]:
    """Yield the numbers that the app has otherwise.

    Args:
        pipeline: With its app.
        scaling_factor: Of the checkpoint's VAE.

    """
    app = pipeline.app
    factor, guidance = app.scaling_factor, app.guidance_scale
    if factor is not None and abs(factor / scaling_factor - 1) > _CLOSE:
        yield Setting(
            name="scaling_factor",
            app=factor,
            own=scaling_factor,
            place="the VAE's config.json",
        )
    if guidance is not None and guidance != pipeline.guidance_scale:
        yield Setting(
            name="guidance_scale",
            app=guidance,
            own=pipeline.guidance_scale,
            place=f"[pipeline.{pipeline.name}]",
        )


def without(pipeline: Pipeline, name: str) -> Pipeline:
    """Return the pipeline whose app has a setting as the reference has it."""
    return replace(pipeline, app=replace(pipeline.app, **{name: None}))


def tried(
    settings: Iterator[Setting], total: float, draw: Callable[[str], float]
) -> list[Setting]:
    """Say of each setting what share of the error goes with it.

    Args:
        settings: The app's other numbers.
        total: Mean squared error of the pictures with all of them.
        draw: Returns it without the setting of a name.

    """
    if total <= 0.0:
        return []
    return [
        replace(setting, share=max(0.0, 1.0 - draw(setting.name) / total))
        for setting in settings
    ]
