from __future__ import annotations

from dynaflow_dsl.resolve import ScheduleFile, Unreadable, resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

PARTS = """\
    part attn on side = .input_layernorm + .self_attn
    part mlp = rest
"""
INLINE = """\
dfs 1
schedule s:
    stream side
    split batch into 2 as half
    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""
USE = INLINE.replace(
    INLINE[INLINE.index("        part attn") : INLINE.index("        stagger")],
    "        use layers\n",
)
OWN = USE.replace("dfs 1\n", f"dfs 1\nparts layers:\n{PARTS}")
OTHER = USE.replace("dfs 1\n", 'dfs 1\nfrom "p.dfs" import layers\n')


def file(text: str, **others: str) -> ScheduleFile:
    sources = {f"{name}.dfs": Source(f"{name}.dfs", t) for name, t in others.items()}
    tree = parse(Source("a.dfs", text)).unwrap()
    return resolve(
        tree, lambda _, name: sources.get(name, Unreadable("no such file"))
    ).unwrap()


def test_a_group_means_what_its_parts_mean() -> None:
    inline, own = file(INLINE), file(OWN)
    other = file(OTHER, p=f"dfs 1\nparts layers:\n{PARTS}")
    assert inline.digest == own.digest == other.digest
    windows = [w.text for w in inline.schedules[0].sections[0].windows]
    for each in (own, other):
        (schedule,) = each.schedules
        assert [window.text for window in schedule.sections[0].windows] == windows


def test_the_digest_follows_the_imported_file() -> None:
    changed = PARTS.replace(".self_attn", ".attention")
    first = file(OTHER, p=f"dfs 1\nparts layers:\n{PARTS}")
    again = file(OTHER, p=f"dfs 1\n# other words\nparts layers:\n\n{PARTS}")
    second = file(OTHER, p=f"dfs 1\nparts layers:\n{changed}")
    assert first.digest == again.digest != second.digest


def test_every_place_in_a_part_knows_the_use() -> None:
    (schedule,) = file(OTHER, p=f"dfs 1\nparts layers:\n{PARTS}").schedules
    for part in schedule.parts:
        for span in (part.span, part.name_span, part.selector.span):
            assert span.source.name == "p.dfs"
            (use,) = span.uses
            assert (use.source.name, use.text) == ("a.dfs", "use layers")
    (stagger,) = schedule.sections[0].windows[0].span.uses
    assert stagger.text.startswith("stagger ")


def test_parts_of_a_group_and_of_the_each_read_each_other() -> None:
    parts = PARTS.replace("rest", "rest - gate").replace("+ .self", "- gate + .self")
    text = OWN.replace(PARTS, parts).replace(
        "        use layers\n", "        use layers\n        part gate = .gate\n"
    )
    text = text.replace("            mlp\n", "            mlp\n            gate\n")
    assert [p.name for p in file(text).schedules[0].parts] == [
        "attn",
        "mlp",
        "gate",
    ]


def test_two_groups_and_several_schedules() -> None:
    groups = "parts a:\n    part attn on side = .self_attn\n"
    groups += "parts b:\n    part mlp = rest\n"
    body = USE[6:].replace("use layers", "use b\n        use a")
    text = f"dfs 1\n{groups}{body}{body.replace('schedule s', 'schedule t')}"
    first, second = file(text).schedules
    assert [part.name for part in first.parts] == ["mlp", "attn"]
    assert first.parts[0].span.uses != second.parts[0].span.uses


def test_a_file_of_groups_alone_is_fine() -> None:
    assert file(f"dfs 1\nparts layers:\n{PARTS}").schedules == ()


def codes(text: str, **others: str) -> list[str]:
    sources = {f"{name}.dfs": Source(f"{name}.dfs", t) for name, t in others.items()}
    tree = parse(Source("a.dfs", text)).unwrap()
    found = resolve(tree, lambda _, name: sources.get(name, Unreadable("no such file")))
    return [each.code for each in found.diagnostics]


THROUGH = "parts layers:\n    part attn via fused() = .self_attn\n    part mlp = rest\n"
FUSED = 'kernel fused = "a:b"\n'
USE_THROUGH = OTHER.replace("    stream side\n", "")


def test_the_kernel_of_a_group_is_looked_up_where_the_group_stands() -> None:
    assert codes(f"dfs 1\n{THROUGH}") == ["DFS102"]
    assert codes(f"dfs 1\n{FUSED}{THROUGH}") == []
    assert codes(USE_THROUGH, p=f"dfs 1\n{THROUGH}") == ["DFS102"]
    assert codes(USE_THROUGH, p=f"dfs 1\n{FUSED}{THROUGH}") == []
    assert codes(f"dfs 1\n{FUSED.replace('a:b', 'a')}{THROUGH}") == ["DFS402"]


def test_a_kernel_that_was_not_read_is_one_mistake() -> None:
    through = f'dfs 1\nfrom "p.dfs" import fused\n{THROUGH}'
    assert codes(through) == ["DFS113"]
    assert codes(through, p="dfs 1\nparts other:\n    part a = .a\n") == ["DFS102"]
    assert codes(through, p=f"dfs 1\n{FUSED}") == []
