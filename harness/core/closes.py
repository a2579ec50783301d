"""What owns child processes or files, and is used in a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closes(ABC):
    """Closed when its `with` ends, however it ends."""

    @abstractmethod
    def close(self) -> None:
        """End what it owns."""

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
