"""Binding to plan: windows, streams, events, splits and lifetimes."""

from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.plan.plan import plan

__all__ = ["Plan", "plan"]
