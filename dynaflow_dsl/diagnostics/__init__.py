"""Diagnostics are values, collected; each output format is a renderer of its own."""

from dynaflow_dsl.diagnostics.codes import Explanation, explanation
from dynaflow_dsl.diagnostics.model import (
    Diagnostic,
    DiagnosticError,
    Label,
    Result,
    Severity,
    has_errors,
)
from dynaflow_dsl.diagnostics.render import Form, render

__all__ = [
    "Diagnostic",
    "DiagnosticError",
    "Explanation",
    "Form",
    "Label",
    "Result",
    "Severity",
    "explanation",
    "has_errors",
    "render",
]
