"""nn.ModuleList with a static type for its elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

if TYPE_CHECKING:
    Layer = TypeVar("Layer", bound=nn.Module)

    class Layers(nn.ModuleList, Generic[Layer]):
        def __init__(self, layers: Iterable[Layer]) -> None: ...

        def __iter__(self) -> Iterator[Layer]: ...

else:
    Layers = nn.ModuleList
