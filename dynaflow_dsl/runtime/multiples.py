"""Sizes that a part sees only in multiples or products, such as `4 * batch` rows.

The compiler needs each symbol as the size of some axis, or it cannot read it. So such a
part is compiled with one symbol for the whole product: no more is known of it there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from dynaflow_dsl.runtime.variants import SizeInput, TensorLayout, Variant


@dataclass(frozen=True, slots=True)
class Renamed:
    """A variant whose sizes are written over `products`: names for what is unreadable.

    `products` maps each new name to its text over the dimensions of the executor.
    """

    variant: Variant
    products: Mapping[str, str]

    def sizes(self, dimensions: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the products, for those of the dimensions."""
        found = {}
        for name, product in self.products.items():
            size, names = _factors(product)
            for each in names.elements():
                size *= dimensions[each]
            found[name] = size
        return found


def readable(variant: Variant) -> Renamed:
    """The variant with a name of its own for each product that stands for a size.

    Sizes that are no products, or of which no axis is a factor of all others, are left
    as they are.
    """
    unreadable = _unreadable(variant)
    products: dict[str, str] = {}
    while unreadable:
        base = min(unreadable, key=lambda text: (_rank(text), text))
        name = _name(base)
        renamed = _renamed(variant, base, name)
        if renamed is None:
            break
        variant, products[name] = renamed, base
        unreadable = _unreadable(variant)
    return Renamed(variant, products)


def _unreadable(variant: Variant) -> set[str]:
    """Sizes of axes over dimensions that are the whole size of none."""
    axes = _axes(variant)
    plain = _plain(variant)
    found = set()
    for text in axes:
        parsed = _product(text)
        if parsed is not None and not set(parsed[1]) <= plain:
            found.add(text)
    return found


def _axes(variant: Variant) -> set[str]:
    return {text for layout in _layouts(variant) for text in _texts(layout.shape)}


def _plain(variant: Variant) -> set[str]:
    """Names that are the whole size of an axis, or an argument."""
    single = {each.size for each in variant.arguments if isinstance(each, SizeInput)}
    return {text for text in _axes(variant) | single if text.isidentifier()}


def _renamed(variant: Variant, base: str, name: str) -> Variant | None:
    """All sizes divided by `base`; None where one is over its names and no multiple."""
    factor, names = _factors(base)
    plain = _plain(variant)

    def divided(size: int | str) -> int | str:
        if isinstance(size, int) or _names(size) <= plain:
            return size
        if _names(size).isdisjoint(names):
            return size
        parsed = _product(size)
        if parsed is None or parsed[0] % factor or names - parsed[1]:
            raise ArithmeticError(size)
        left = parsed[1] - names
        terms = [*left.elements(), name]
        number = parsed[0] // factor
        return "*".join([str(number), *terms] if number != 1 else terms)

    def of_layout(layout: TensorLayout) -> TensorLayout:
        return replace(
            layout,
            shape=tuple(map(divided, layout.shape)),
            strides=tuple(map(divided, layout.strides)),
        )

    try:
        return replace(
            variant,
            arguments=tuple(
                of_layout(each) if isinstance(each, TensorLayout) else each
                for each in variant.arguments
            ),
        )
    except ArithmeticError:
        return None


def _layouts(variant: Variant) -> Iterator[TensorLayout]:
    return (each for each in variant.arguments if isinstance(each, TensorLayout))


def _texts(sizes: tuple[int | str, ...]) -> Iterator[str]:
    return (size for size in sizes if isinstance(size, str))


def _product(text: str) -> tuple[int, Counter[str]] | None:
    """The factor and the names of a product; None for any other expression."""
    terms = [term.strip() for term in text.split("*")]
    numbers = [int(term) for term in terms if term.isdigit()]
    names = Counter(term for term in terms if term.isidentifier())
    if len(numbers) + names.total() != len(terms):
        return None
    return reduce(int.__mul__, numbers, 1), names


def _name(product: str) -> str:
    """`4*batch` is `batch_times_4`."""
    factor, names = _factors(product)
    terms = [*names.elements(), *([str(factor)] if factor != 1 else [])]
    return "_times_".join(terms)


def _names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _factors(text: str) -> tuple[int, Counter[str]]:
    """Those of what is known to be a product."""
    parsed = _product(text)
    assert parsed is not None, text
    return parsed


def _rank(text: str) -> tuple[int, int]:
    """What is divided by fewer names, and by smaller numbers, goes first."""
    factor, names = _factors(text)
    return names.total(), factor
