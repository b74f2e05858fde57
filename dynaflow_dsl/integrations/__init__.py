"""Scheduled models inside other libraries."""
