"""Random models of one or two stacks, and random schedules with all forms of steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

STREAMS = ("main", "left", "right")


@dataclass(frozen=True, slots=True)
class Form:
    """A graph in the words of `tests.bind.graphs`, and a schedule for it."""

    graph: str
    schedule: str
    written: tuple[str, ...]
    has: frozenset[str]


@st.composite
def forms(draw: st.DrawFn) -> Form:
    pieces = draw(st.sampled_from([1, 2, 2, 3]))
    inputs, lines, sections = ["x", "y"], [], []
    written: list[str] = []
    has: set[str] = set()
    current = "x"
    if draw(st.booleans()):
        lines.append("start = relu(x) @ embed")
        current = "start"
    if draw(st.integers(0, 3)) == 0:
        lines += [f"u = relu({current}) @ left", f"v = relu({current}) @ right"]
        lines.append("w = add.Tensor(u, v) @ join")
        current = "w"
        sections.append(_towers(draw, pieces))
        has.add("whole")
    memory = ""
    for stack in range(draw(st.sampled_from([1, 1, 2]))):
        names = [f"{'abcd'[k]}{stack}" for k in range(draw(st.integers(2, 4)))]
        layers = draw(st.sampled_from([1, 2, 3, 5]))
        gaps = draw(st.sampled_from([(), (), (1,), (1, 2), (1, 2, 3, 4), (2, 4)]))
        reads = {
            name: draw(st.sets(st.sampled_from(["h", *names[:k]]), min_size=1))
            for k, name in enumerate(names)
        }
        reads[names[0]] = {"h"}
        mixes = {name for name in names if memory and draw(st.booleans())}
        cached = {name for name in names if draw(st.integers(0, 4)) == 0}
        if stack and draw(st.booleans()):
            current = "y"
        for i in range(layers):
            if i in gaps:
                has.add("gap")
                lines.append(f"g{stack}{i} = relu({current}) @ bridge{stack}.{i}")
                current = f"g{stack}{i}"
            for name in names:
                module = f"stack{stack}.{i}.{name}"
                operands = [
                    current if read == "h" else f"{read}_{i}"
                    for read in sorted(reads[name])
                ]
                operands += [memory] * (name in mixes)
                total = f"t{name}_{i}"
                lines.append(f"{total} = relu({operands[0]}) @ {module}")
                for k, other in enumerate(operands[1:]):
                    lines.append(
                        f"{total}{k} = add.Tensor({total}, {other}) @ {module}"
                    )
                    total = f"{total}{k}"
                if name in cached:
                    key = f"k{name}_{i}"
                    inputs.append(key)
                    written.append(key)
                    lines.append(f"add_.Tensor({key}, {total}) @ {module}")
                lines.append(f"{name}_{i} = relu({total}) @ {module}")
            current = (
                f"{names[-1]}_{layers - 1}" if i == layers - 1 else f"{names[-1]}_{i}"
            )
        sections.append(_stack(draw, stack, names, pieces, has))
        has.add(f"{stack + 1} stacks")
        memory = current
        if draw(st.booleans()):
            lines.append(f"n{stack} = relu({current}) @ norm{stack}")
            current = memory = f"n{stack}"
    results = [
        current,
        *([memory] if memory != current and draw(st.booleans()) else []),
    ]
    if draw(st.booleans()):
        lines.append(f"z = relu({current}) @ head")
        results[0] = "z"
    text = "\n".join(
        [f"input {' '.join(inputs)}", *lines, f"return {' '.join(results)}"]
    )
    declared = re.findall(r" on (.*?) = ", "\n".join(sections))
    used = [s for s in STREAMS[1:] if any(s in on for on in declared)]
    head = ["dfs 1", "", "schedule s:", *(f"    stream {s}" for s in used)]
    if pieces > 1:
        weights = draw(st.sampled_from([str(pieces), str([1, 2, 3][:pieces])]))
        head.append(f"    split batch into {weights} as mb")
    return Form(text, "\n".join([*head, *sections, ""]), tuple(written), frozenset(has))


def _towers(draw: st.DrawFn, pieces: int) -> str:
    on = draw(st.sampled_from(["left", "right"]))
    mark = draw(st.sampled_from(["", "[*]"])) if pieces > 1 else ""
    return "\n".join(
        [
            f"    part one on {on} = .left",
            "    part two = .right",
            "    part three = .join",
            "    order:",
            "        one | two",
            f"        three{mark}",
        ]
    )


def _stack(
    draw: st.DrawFn, stack: int, names: list[str], pieces: int, has: set[str]
) -> str:
    where = {
        name: draw(st.sampled_from(STREAMS))
        if draw(st.integers(0, 3))
        else [draw(st.sampled_from(STREAMS)) for _ in range(pieces)]
        for name in names
    }
    lines = [f"    each l{stack} in .stack{stack}.*:"]
    for name in names:
        on = where[name]
        on = on if isinstance(on, str) else f"[{', '.join(on)}]"
        lines.append(f"        part {name} on {on} = .{name}")
    if pieces > 1 and pieces - 1 <= len(names) and draw(st.integers(0, 2)) == 0:
        lines += [
            "        stagger mb by 1:",
            *(f"            {name}" for name in names),
        ]
        return "\n".join(lines)
    joined = {
        name
        for name in names
        if pieces > 1 and isinstance(where[name], str) and draw(st.integers(0, 3)) == 0
    }
    has |= {"joined"} if joined else set()
    steps = _merged(draw, names, pieces, joined)
    moved = draw(st.integers(0, len(steps) // 2)) if draw(st.booleans()) else 0
    texts = [f"prev.{step}" for step in steps[len(steps) - moved :]]
    texts += steps[: len(steps) - moved]

    def stream(text: str) -> str:
        name, _, index = text.partition(" ")[0].removeprefix("prev.").partition("[")
        on = where[name]
        return on if isinstance(on, str) else on[int(index.rstrip("]") or 0)]

    if draw(st.booleans()):
        k = draw(st.integers(0, len(texts) - 1))
        others = [t for t in texts[:k] if stream(t) != stream(texts[k])]
        if others:
            texts[k] = f"{texts[k]} after {draw(st.sampled_from(others))}"
            has.add("after")
    windows: list[list[str]] = []
    for text in texts:
        last = windows[-1] if windows else []
        free = stream(text) not in map(stream, last)
        if last and free and draw(st.integers(0, 3)) == 0:
            last.append(text)
        else:
            windows.append([text])
    lines += ["        order:", *(f"            {' | '.join(w)}" for w in windows)]
    return "\n".join(lines)


def _merged(
    draw: st.DrawFn, names: list[str], pieces: int, joined: set[str]
) -> list[str]:
    """Each piece in its own order, merged at random; joined parts between them."""
    found: list[str] = []
    waiting: list[str] = []

    def flush() -> None:
        left = {piece: list(waiting) for piece in range(pieces)}
        while any(left.values()):
            piece = draw(st.sampled_from([p for p in left if left[p]]))
            name = left[piece].pop(0)
            found.append(f"{name}[{piece}]" if pieces > 1 else name)
        waiting.clear()

    for name in names:
        if name in joined:
            flush()
            found.append(f"{name}[*]")
        else:
            waiting.append(name)
    flush()
    return found
