from __future__ import annotations

from dynaflow_dsl.diagnostics import Result
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.resolve.model import Schedule, ScheduleFile
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse


def resolved(lines: str, parameters: str = "") -> Result[ScheduleFile]:
    text = f"""dfs 1
schedule s{parameters}:
    {lines}
    each layer in .l.*:
        part all = rest
        order:
            all
"""
    return resolve(parse(Source("a.dfs", text)).unwrap())


def schedule(lines: str, parameters: str = "") -> Schedule:
    return resolved(lines, parameters).unwrap().schedules[0]


def test_sizes_and_options_of_all_lines() -> None:
    found = schedule(
        "capture batch at [few, 2 * few] (static = true)\n"
        "    capture seq at [512] (pieces = 1 < 2)",
        "(few = 4)",
    ).captures
    assert [(one.dimension, one.sizes) for one in found] == [
        ("batch", (4, 8)),
        ("seq", (512,)),
    ]
    assert all(one.static and one.pieces for one in found)


def test_options_are_off_by_default() -> None:
    (found,) = schedule("capture batch at [1]").captures
    assert not found.static
    assert not found.pieces


def test_a_parameter_goes_before_the_word_of_a_priority() -> None:
    text = """dfs 1
schedule s(high = "normal"):
    stream a (priority = high)
    stream b (priority = "high", sms = 2 * 8, gemm_sms = 24)
    stream c
    each layer in .l.*:
        part one on a = .a
        part two on b = .b
        part other on c = rest
        order:
            one
            two
            other
"""
    file = resolve(parse(Source("a.dfs", text)).unwrap()).unwrap()
    options = [(s.priority, s.sms, s.gemm_sms) for s in file.schedules[0].streams]
    assert options == [
        ("normal", None, None),
        ("high", 16, 24),
        ("normal", None, None),
    ]


def test_the_digest_counts_what_is_captured_and_nothing_else() -> None:
    digests = [
        resolved(line).unwrap().digest
        for line in (
            "",
            "capture batch at [4]",
            "capture batch at [4, 8]",
            "capture batch at [4] (static = true)",
            "capture batch at [4] (pieces = true)",
        )
    ]
    assert len(set(digests)) == len(digests)
    same = "capture batch at [2 + 2] (static = false)"
    assert resolved(same).unwrap().digest == digests[1]


def test_too_many_sizes() -> None:
    sizes = ", ".join(map(str, range(1, 259)))
    (found,) = resolved(f"capture batch at [{sizes}]").diagnostics
    assert (found.code, found.message) == ("DFS313", "at most 256 sizes are captured")
