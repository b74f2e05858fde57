"""Prints a module and its map; run as a program under another hash seed."""

from __future__ import annotations

from tests.prove.schedules import SHORT, forms, schedules

if __name__ == "__main__":
    for schedule in (*(schedules()[name] for name in SHORT), *forms().values()):
        print(schedule.text())
        print(schedule.map())
