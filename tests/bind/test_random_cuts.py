"""Whatever bind accepts runs part by part as the graph runs in its own order."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynaflow_dsl.bind import Binding, BoundPart, Place
from dynaflow_dsl.bind.model import GAP
from tests.bind.graphs import attempt, graph
from tests.bind.machine import run_binding, run_graph

MODULES = "xyz"
OUTER = ["m", "n", "k.%i", "shared", "w"]
CARRIED = ["h%i", "r%i"]


@st.composite
def layer_lines(draw: st.DrawFn) -> list[str]:
    """The lines of a layer, which may read what the layer before made."""
    lines: list[str] = []
    known = [*CARRIED, *OUTER]
    local: list[str] = []
    count = draw(st.integers(3, 9))
    for n in range(count):
        # Mostly one module after the other, so that many cuts are good ones.
        usual = f".{MODULES[3 * n // count]}"
        module = draw(st.sampled_from([usual] * 8 + [".x", ".z", "", ""]))
        recent = local[-2:] + CARRIED
        first = draw(st.sampled_from(recent))
        second = draw(st.sampled_from(known + local))
        place = f"@ layers.%i{module}"
        match draw(st.sampled_from(["call"] * 6 + ["view"] * 3 + ["maybe", "write"])):
            case "call":
                lines.append(f"t{n}_%i = f{n}({first}, {second}) {place}")
            case "view":
                lines.append(f"t{n}_%i = ~v{n}({second}) {place}")
            case "maybe":
                lines.append(f"t{n}_%i = ?g{n}({first}) {place}")
            case _:
                target = draw(st.sampled_from(["k.%i", "shared", *local[-1:]]))
                lines.append(f"w{n}_({target}, {first}) {place}")
                continue
        local.append(f"t{n}_%i")
    for name in ("h", "r"):
        source = draw(st.sampled_from(local[-2:] or CARRIED))
        module = draw(st.sampled_from([".z", ".z", ""]))
        lines.append(f"{name}%n = last_{name}({source}, {name}%i) @ layers.%i{module}")
    return lines


@st.composite
def models(draw: st.DrawFn) -> str:
    layers = draw(st.integers(1, 4))
    caches = " ".join(f"k.{i}" for i in range(layers))
    lines = [f"input p m {caches} shared", "weight w"]
    lines += ["n = make(p) @ embed", "h0 = embed(p, w) @ embed"]
    lines.append(
        draw(st.sampled_from(["r0 = start(h0)", "r0 = ~again(h0)", "r0 = start(p)"]))
    )
    if draw(st.booleans()):
        lines.append(f"e_({draw(st.sampled_from(['shared', 'k.0', 'n']))}, h0) @ embed")
    plain = draw(layer_lines())
    for i in range(layers):
        mine = list(plain)
        if draw(st.integers(0, 5)) == 0:
            place = draw(st.integers(0, len(mine) - 1))
            swap = draw(
                st.sampled_from([("h%i", "m"), ("m", "n"), ("k.%i", "m"), ("f1", "f2")])
            )
            mine[place] = mine[place].replace(*swap)
        lines += [s.replace("%i", str(i)).replace("%n", str(i + 1)) for s in mine]
    read = draw(
        st.sampled_from(["shared", "n", f"r{layers}", f"r{max(1, layers - 1)}"])
    )
    lines.append(f"y = head(h{layers}, {read}) @ head")
    if draw(st.booleans()):
        lines.append(
            f"z_({draw(st.sampled_from(['shared', 'y', 'k.0', 'n']))}, y) @ head"
        )
    results = draw(st.sampled_from(["y", f"y h{layers}", "y n p", f"r{layers}"]))
    return "\n".join([*lines, f"return {results}"])


@st.composite
def cuts(draw: st.DrawFn, model: str) -> str:
    """Parts made of the modules of a model, those that hold views alone left out."""
    lines = [line for line in model.splitlines() if "~" not in line]
    used = {module for line in lines for _, _, module in [line.partition("layers.0.")]}
    others = ["next", "prev"] if "layers.1" in model else []
    names = draw(st.sampled_from(["a", "ab", "ab", "abc", "abc"]))
    chosen: dict[str, list[str]] = {name: [] for name in names}
    for module in MODULES:
        if module not in used:
            continue
        anchor = draw(st.sampled_from([""] * 9 + others))
        name = draw(
            st.sampled_from([names[MODULES.index(module) % len(names)], *names])
        )
        chosen[name].append(f"{anchor}.{module}")
    own = any(line.endswith("layers.0") for line in lines)
    if own and draw(st.integers(0, 3)) == 0:
        chosen[draw(st.sampled_from(names))].append("(own in .)")
    lines = []
    free = draw(st.sampled_from([*names, "", "", ""]))
    for name, selectors in chosen.items():
        if name == free:
            selectors = [s for s in selectors if not s.startswith(".")]
            selectors.append("rest")
        if selectors:
            lines.append(f"{name} = {' + '.join(selectors)}")
    return "\n".join(lines or ["a = ."])


def positions(binding: Binding) -> dict[object, int]:
    """When each instance runs, and with it each value that it gives away."""
    steps: list[tuple[BoundPart | None, int]] = [(binding.before, 0)]
    for s, section in enumerate(binding.sections):
        for i in range(len(section.iterations)):
            if binding.gaps is not None and (s, i) in binding.gaps.places:
                n = binding.gaps.places.index(Place(s, i))
                steps.append((binding.gaps.part, n))
            steps += [(part, i) for part in section.parts]
    steps.append((binding.after, 0))
    found: dict[object, int] = {}
    for number, (part, i) in enumerate(steps):
        if part is not None:
            found[(part.name, i)] = number
            found.update((name, number) for name in part.instances[i].outputs if name)
    return found


def check(binding: Binding) -> None:
    """What holds for every binding, whatever the graph."""
    parts = binding.everything
    made = Counter(
        name for part in parts for i in part.instances for name in i.operations
    )
    for operation in binding.graph.operations:
        if not operation.view:
            assert made[operation.name] == 1
    order = positions(binding)
    for part in parts:
        for i, instance in enumerate(part.instances):
            if part.name != GAP:
                assert len(instance.inputs) == len(part.roles)
                assert len(instance.outputs) == len(part.bodies[0].outputs)
            for name in instance.inputs:
                assert order.get(name, -1) < order[(part.name, i)]
    assert run_binding(binding) == run_graph(binding.graph)


def test_random_cuts() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=400,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(models().flatmap(lambda model: st.tuples(st.just(model), cuts(model))))
    def every_cut(case: tuple[str, str]) -> None:
        model, cut = case
        result = attempt(cut, graph(model))
        if result.value is None:
            assert result.diagnostics
            seen.update({found.code for found in result.diagnostics})
        else:
            seen["bound"] += 1
            check(result.value)

    every_cut()
    assert seen["bound"] > 60
    assert seen.keys() == {"bound", *(f"DFS20{n}" for n in range(1, 8))}
