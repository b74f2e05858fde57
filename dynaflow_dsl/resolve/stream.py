"""The `stream` statement: priority, and shares of the multiprocessors."""

from __future__ import annotations

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.resolve import model
from dynaflow_dsl.resolve.findings import unknown_name
from dynaflow_dsl.resolve.values import (
    Scope,
    evaluate,
    evaluate_whole,
    options_by_name,
    written,
    wrong_value,
)
from dynaflow_dsl.syntax import model as syntax

PRIORITIES: tuple[model.Priority, ...] = ("normal", "high")


def resolve_stream(
    stream: syntax.Stream, scope: Scope, found: list[Diagnostic]
) -> model.Stream:
    """A stream with its options; those that are wrong are left out."""
    known = ["priority", "sms", "gemm_sms"]
    options = options_by_name(stream.options, "stream", known, found)
    priority: model.Priority = "normal"
    if "priority" in options:
        priority = _priority(options["priority"].value, scope, found)
    sms, gemm_sms = (
        _sms(options[name].value, scope, found) if name in options else None
        for name in ("sms", "gemm_sms")
    )
    return model.Stream(stream.name.text, stream.name.span, priority, sms, gemm_sms)


def _priority(
    expression: syntax.Expression, scope: Scope, found: list[Diagnostic]
) -> model.Priority:
    """`high` or `normal`; the words are no names, so a parameter goes before them."""
    value: model.Value | None
    match expression:
        case syntax.Symbol(name) if name not in scope:
            value = name
        case _:
            value = evaluate(expression, found, scope)
            if value is not None and not isinstance(value, str):
                found.append(wrong_value("high or normal", value, expression.span))
                return "normal"
    for priority in PRIORITIES:
        if value == priority:
            return priority
    if isinstance(value, str):
        found.append(unknown_name("priority", value, expression.span, PRIORITIES))
    return "normal"


def _sms(
    expression: syntax.Expression, scope: Scope, found: list[Diagnostic]
) -> int | None:
    value = evaluate_whole(expression, found, scope)
    if value is not None and value < 1:
        message = "a stream has one multiprocessor or more"
        label = Label(expression.span, f"this is {written(value)}")
        found.append(Diagnostic("DFS315", message, label))
        return None
    return value
