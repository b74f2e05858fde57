"""What `dfsc profile` gives of profiles: a trace, some lines, and the same as data.

Importing it needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dynaflow_dsl.cli.files import relative, write_text
from dynaflow_dsl.cli.on_device import how_it_ran
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.measurement.profile import Profile
from dynaflow_dsl.measurement.rank_clocks import RankClock
from dynaflow_dsl.measurement.rank_meetings import Meetings, find_meetings
from dynaflow_dsl.measurement.step_summary import StepSummary, summarise
from dynaflow_dsl.measurement.summary_text import (
    clock_lines,
    meeting_lines,
    summary_lines,
)
from dynaflow_dsl.measurement.trace_file import (
    Shown,
    assigned,
    shifts_of,
    trace_document,
)


def write_profiles(
    reporter: Reporter,
    file: str,
    path: Path,
    by_rank: Sequence[Mapping[str, Profile]],
    clocks: Sequence[RankClock],
) -> None:
    """Write the trace of what ranks have run, by title, and tell what it shows.

    `file` is the schedule file. Raises DiagnosticError (DFS506) where the trace cannot
    be written.
    """
    titles = list(by_rank[0])
    keys = [(title, rank) for title in titles for rank in range(len(by_rank))]
    shown = [
        Shown(
            f"rank {rank}: {title}" if len(by_rank) > 1 else title,
            by_rank[rank][title],
            clocks[rank].ahead,
        )
        for title, rank in keys
    ]
    write_text(path, json.dumps(trace_document(shown)) + "\n")
    shifts = dict(zip(keys, shifts_of(shown), strict=True))
    met = {
        title: find_meetings(
            {rank: profiles[title] for rank, profiles in enumerate(by_rank)},
            {rank: shifts[title, rank] for rank in range(len(by_rank))},
        )
        for title in titles
    }
    summaries = {key: summarise(by_rank[key[1]][key[0]]) for key in keys}
    inside, whole = assigned([each.profile for each in shown])
    lines = [
        f"{relative(path)}: {inside} of {whole} operations lie in a step",
        *clock_lines(clocks),
    ]
    for title in titles:
        lines += ["", title]
        profiles = [each[title] for each in by_rank]
        told = [summaries[title, rank] for rank in range(len(by_rank))]
        lines += [f"  {line}" for line in _lines(file, profiles, told, met[title])]
    reporter.result(
        "\n".join(lines),
        {
            "trace": relative(path),
            "operations": whole,
            "operations_in_steps": inside,
            "ranks": len(by_rank),
            "clocks": [asdict(one) for one in clocks],
            "profiles": [
                _data(title, rank, by_rank[rank][title], summaries[title, rank])
                for title, rank in keys
            ],
            "collectives": {title: asdict(found) for title, found in met.items()},
        },
    )


def _lines(
    file: str,
    profiles: Sequence[Profile],
    summaries: Sequence[StepSummary | None],
    met: Meetings,
) -> Iterator[str]:
    """What is told of one entry of a schedule, on all ranks."""
    for rank, (profile, summary) in enumerate(zip(profiles, summaries, strict=True)):
        where = f"rank {rank} on" if len(profiles) > 1 else "on"
        head = f"{where} {profile.device}, {how_it_ran(profile)}"
        if summary is None:
            yield f"{head}: no steps"
        else:
            yield from summary_lines(head, file, summary)
        if profile.on_host and len(profile.streams) > 1:
            main = profile.streams[0]
            yield (
                "  streams of the CPU are one thread, collectives of several ranks "
                f"apart: {main} waits for all other steps beside it"
            )
    yield from meeting_lines(met, file)


def _data(
    title: str, rank: int, profile: Profile, summary: StepSummary | None
) -> dict[str, object]:
    return {
        "title": title,
        "rank": rank,
        "device": profile.device,
        "replayed": profile.replayed,
        "refused": profile.refused,
        "streams": list(profile.streams),
        "steps": len(profile.timeline.steps),
        "summary": asdict(summary) if summary is not None else None,
    }
