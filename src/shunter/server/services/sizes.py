"""What callers may ask about machine sizes."""

from __future__ import annotations

from collections.abc import Sequence

from shunter.catalogue import sizes
from shunter.catalogue.sizes import Size, Wanted
from shunter.server.services.parts import Parts


def find_sizes(parts: Parts, wanted: Wanted) -> Sequence[Size]:
    """Sizes that fit, cheapest first, a person's own among them."""
    return sizes.load(parts.home).find(wanted)


def get_size(parts: Parts, name: str) -> Size:
    return sizes.load(parts.home).get(name)
