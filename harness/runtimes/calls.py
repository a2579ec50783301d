"""How a runtime declares the calls of its driver, which a file from elsewhere may have.

The module ``calls`` beside a driver has ``CALLS``, the union of its calls, and
``refusals(call, files)``. The calls are a closed set, and each has a form.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

PLACE = "bundle:"
"""What a path in a bundle's calls begins with; the bundle's folder replaces it."""

FOLDER = "model-[0-9]{1,4}"
FILE = FOLDER + r"/(?!\.{1,2}\Z)[^/\\\x00-\x1f]{1,255}"

Name = Annotated[str, Meta(max_length=4096)]
"""A name that somebody chose: of a value, a sample or a case. It is never a path."""

Model = Annotated[str, Meta(pattern=rf"\A{PLACE}{FILE}\Z")]
NoModel = Annotated[str, Meta(pattern=rf"\A({PLACE}{FILE})?\Z")]
"""A file of a bundle, or an empty text."""

Folder = Annotated[str, Meta(pattern=rf"\A{PLACE}{FOLDER}\Z")]
Threads = Annotated[int, Meta(ge=0, le=1024)]

Option = bool | int | float | Name


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a call: those of the driver's method, and no others."""


class Call(
    Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True
):
    """A call of a driver's method, whose name is the tag ``do``.

    Attributes:
        kind: What the call shows: ``outputs``, ``layers``, or nothing that is kept.
        sample: The sample that it runs.
        feeds: Name of each array that it takes, to the array's key in the feeds, or to
            the number of the call that showed it and its name there.

    """

    kind: Literal["", "outputs", "layers"]
    sample: Name
    feeds: dict[Name, Name]
