"""Trace targets for models that people use."""
