"""Prints a module and its map; run as a program under another hash seed."""

from __future__ import annotations

from tests.prove.schedules import SHORT, schedules

if __name__ == "__main__":
    for name in SHORT:
        schedule = schedules()[name]
        print(schedule.text())
        print(schedule.map())
