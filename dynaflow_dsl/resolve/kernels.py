"""`kernel` and `via`: which callable of the user's stands in for a part."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import given_twice, unknown_name
from dynaflow_dsl.resolve.values import (
    Scope,
    evaluate,
    flag,
    options_by_name,
    wrong_value,
)
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import model as syntax

# The kernels that a file knows, and names about which something was said already.
Known: TypeAlias = tuple[Mapping[str, syntax.Kernel], Collection[str]]

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@dataclass(slots=True)
class Kernels:
    """The kernels of all files; a `via` names one of the file that it stands in.

    `known_in` gives those of a file. `used` collects the declarations that some part
    runs through.
    """

    known_in: Callable[[Source], Known]
    found: list[Diagnostic]
    used: set[Span] = field(default_factory=set)

    def via(self, call: syntax.Call, scope: Scope) -> model.Via | None:
        """The kernel of a part and its arguments; None after an error."""
        name = call.name
        known, broken = self.known_in(name.span.source)
        self.found += check_known(name, known, broken)
        if name.text not in known:
            return None
        declared = known[name.text]
        self.used.add(declared.span)
        arguments: dict[str, model.Value] = {}
        first: dict[str, Span] = {}
        sound = True
        for argument in call.arguments:
            key = argument.name
            if key.text in first:
                what = f"argument '{key.text}'"
                self.found.append(given_twice(what, key.span, first[key.text]))
                sound = False
                continue
            first[key.text] = key.span
            value = evaluate(argument.value, self.found, scope)
            if isinstance(value, tuple):
                wanted = "a number, a text, true or false"
                self.found.append(wrong_value(wanted, value, argument.value.span))
                value = None
            if value is None:
                sound = False
            else:
                arguments[key.text] = value
        kernel = resolve_kernel(declared, self.found)
        if kernel is None or not sound:
            return None
        return model.Via(kernel, tuple(arguments.items()), call.span)


def check_known(
    name: syntax.Name, known: Collection[str], broken: Collection[str]
) -> Iterator[Diagnostic]:
    """Whether a `via` names a kernel."""
    if name.text not in known and name.text not in broken:
        declare = f"'kernel {name.text} = \"package.module:name\"'"
        yield unknown_name("kernel", name.text, name.span, known, declare)


def resolve_kernel(tree: syntax.Kernel, found: list[Diagnostic]) -> model.Kernel | None:
    """A declaration with its options; None where it names nothing importable."""
    known = ("symmetric_memory", "trusted")
    options = options_by_name(tree.options, "kernel", known, found)
    flags = {name: flag(options.get(name), found) for name in known}
    place, _, _ = tree.target.value.partition(":")
    if not _TARGET.fullmatch(tree.target.value) or place.endswith(".py"):
        label = "this is no place to import from"
        if ".py" in place or "/" in place or "\\" in place:
            label = "a kernel is named by its module, not by a file"
        found.append(
            Diagnostic(
                "DFS402",
                f'"{tree.target.value}" names no kernel',
                Label(tree.target.span, label),
                helps=(f'write "{_as_module(tree.target.value)}"',),
            )
        )
        return None
    return model.Kernel(
        tree.name.text,
        tree.target.value,
        flags["symmetric_memory"],
        tree.span,
        flags["trusted"],
    )


def _as_module(target: str) -> str:
    """The spelling that was meant, as far as can be seen, else the form of all."""
    place, colon, name = target.partition(":")
    module = re.sub(r"[/\\]+", ".", place.removesuffix(".py")).strip(".")
    if not colon:
        module, _, name = module.rpartition(".")
    meant = f"{module}:{name}"
    return meant if _TARGET.fullmatch(meant) else "package.module:name"


def unused_kernels(
    kernels: Mapping[str, syntax.Kernel], used: set[Span]
) -> Iterator[Diagnostic]:
    """Every statement has an effect: a kernel that no part runs through has none."""
    for name, tree in kernels.items():
        if tree.span not in used:
            yield Diagnostic(
                "DFS103",
                f"kernel '{name}' is never used",
                Label(tree.name.span, "no part runs through it"),
                helps=(f"remove it, or write 'part NAME via {name} = ...'",),
            )
