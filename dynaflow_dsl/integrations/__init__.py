"""Ways into other systems: what they hand over goes through the same pipeline."""

from dynaflow_dsl.integrations.dynamo.report import Report, report

__all__ = ["Report", "report"]
