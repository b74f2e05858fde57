"""Every schedule in docs/language.md and on the pages of codes does what is said of it.

A block of `dfs` is a complete file, one of `dfs fragment` some statements of a
schedule; both must be right. A code behind that says that the block is wrong, and how.
All are bound, planned and proved with a small stand-in of a Llama model.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection
from functools import cache

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.diagnostics import Diagnostic, Severity
from dynaflow_dsl.diagnostics.codes import explanations
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.runtime.model import Split
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax.words import RESERVED
from tests.bind.graphs import graph, repeat
from tests.project.commands import ROOT

DOCUMENT = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```dfs(?P<marks>[ \w]*)\n(?P<text>.*?)^```", re.M | re.S)
BLOCKS = [(match["marks"].split(), match["text"]) for match in FENCE.finditer(DOCUMENT)]

LAYER = """
    norm%i = relu(h%i) @ model.layers.%i.input_layernorm
    q%i = mul.Tensor(norm%i, Q.weight) @ Q
    k%i = relu(norm%i) @ model.layers.%i.self_attn.k_proj
    v%i = relu(norm%i) @ model.layers.%i.self_attn.v_proj
    s%i = mul.Tensor(q%i, k%i) @ model.layers.%i.self_attn
    t%i = mul.Tensor(s%i, v%i) @ model.layers.%i.self_attn
    y%i = relu(t%i) @ model.layers.%i.self_attn.o_proj
    z%i = _c10d_functional.all_reduce.default(y%i) @ model.layers.%i.self_attn.o_proj
    o%i = ?_c10d_functional.wait_tensor.default(z%i) @ model.layers.%i.self_attn.o_proj
    r%i = add.Tensor(h%i, o%i) @ model.layers.%i
    p%i = relu(r%i) @ model.layers.%i.post_attention_layernorm
    g%i = relu(p%i) @ model.layers.%i.mlp.gate_proj marked gate
    u%i = mul.Tensor(p%i, UP.weight) @ UP
    m%i = mul.Tensor(g%i, u%i) @ model.layers.%i.mlp by model.swiglu
    d%i = relu(m%i) @ model.layers.%i.mlp.down_proj
    h%n = add.Tensor(r%i, d%i) @ model.layers.%i
"""
for short, module in (("Q", "self_attn.q_proj"), ("UP", "mlp.up_proj")):
    LAYER = re.sub(rf"\b{short}\b", f"model.layers.%i.{module}", LAYER)
LAYERS = 4


def model(layers: int) -> str:
    weights = " ".join(
        f"model.layers.{i}.{module}.weight:fixed"
        for i in range(layers)
        for module in ("self_attn.q_proj", "mlp.up_proj")
    )
    return f"""
    input x
    weight {weights}
    phases decode prefill
    h0 = relu(x) @ model.embed_tokens
    {repeat(LAYER, layers)}
    last = relu(h{layers}) @ model.norm
    logits = relu(last) @ lm_head
    return logits
"""


# Models that show what the stand-in does right: one line of it is written otherwise.
CHANGED = {
    "DFS205": ("r2 = add.Tensor(h2, o2)", "r2 = add.Tensor(h1, o2)"),
    "DFS206": ("p%i =", "add_.Tensor(o%i, h%i) @ model.layers.%i.mlp\n    p%i ="),
    "DFS207": ("norm%i = relu", "norm%i = ?reshape"),
    "DFS208": (
        "d%i = relu(m%i)",
        "d%i = mul.Tensor(m%i, model.layers.0.mlp.up_proj.weight)",
    ),
    "DFS209": ("return logits", "return logits model.layers.0.mlp.up_proj.weight"),
    "DFS601": ("g%i = relu(p%i)", "g%i = sum(p%i)"),
    "DFS321": ("g%i = relu(p%i)", "g%i = nonzero(p%i)"),
    "DFS324": ("g%i = relu(p%i)", "g%i = nonzero(p%i)"),
    "DFS308": ("norm%i = relu(h%i)", "norm%i = relu(x)"),
    "DFS703": ("norm%i = relu(h%i)", "norm%i = relu(x)"),
    "DFS602": ("g%i =", "w%i = relu(other) @ model.layers.%i.mlp\n    g%i ="),
}
# What the lines of a `select` on a page choose.
CHOSEN = """
schedule halves(ways = 2):
    stream side
    split batch into ways as half
    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""
# Codes that no schedule text can show: what they are about is named on their pages.
SHOWN_OTHERWISE = {
    "DFS002": "a tab cannot be seen",
    "DFS006": "its text is long",
    "DFS021": "about layout",
    "DFS104": "takes two files",
    "DFS105": "said in a line",
    "DFS106": "about a model",
    "DFS110": "about a model",
    "DFS111": "about a model",
    "DFS112": "about a file",
    "DFS113": "about a file",
    "DFS115": "about a model",
    "DFS116": "no fault",
    "DFS117": "about a package",
    "DFS118": "about a model",
    "DFS130": "about another file",
    "DFS122": "about a model",
    "DFS314": "about a model",
    "DFS606": "about a model",
    "DFS607": "about a model",
}


@cache
def stand_in(code: str = "") -> Graph:
    # Steps of two layers meet in no window of one.
    text = whole = model(1 if code == "DFS323" else LAYERS)
    if code in CHANGED:
        before, after = CHANGED[code]
        for i in range(LAYERS):
            text = text.replace(
                before.replace("%i", str(i)), after.replace("%i", str(i))
            )
        assert text != whole
    if code == "DFS602":
        text = text.replace("input x", "input x other:turned")
    return graph(text)


def findings(text: str, code: str = "") -> tuple[Diagnostic, ...]:
    """All that `dfsc check` says of a file, with the stand-in as its snapshot."""
    file = pipeline.understand(Source("example.dfs", text))
    if file.value is None:
        return file.diagnostics
    model = TracedModel(
        target="package.module:function",
        arguments=(),
        model_class="Model",
        device="cuda",
        dtype="float32",
        captured_by="export",
        facts=(("layers", 4), ("model", "Model")),
        fingerprint=(),
        graphs=(stand_in(code),),
    )
    return pipeline.check_schedules(file.value, model).diagnostics


def completed(text: str) -> str:
    """A file around a fragment: what the fragment has not is added around it."""
    text = textwrap.dedent(text).strip("\n")
    words = {line.split()[0].rstrip(":") for line in text.splitlines() if line.strip()}
    if "dfs" in words:
        return text
    if "select" in words and "schedule" not in words:
        return f"dfs 1\n\n{text}\n{CHOSEN}"
    if "schedule" in words:
        return f"dfs 1\n\n{text}\n"
    if "model" in words:
        return f"dfs 1\n\n{text}\n\nschedule tried:\n{_body('', words)}"
    return f"dfs 1\n\nschedule tried:\n{_body(text, words)}"


def _body(text: str, words: set[str]) -> str:
    """The statements of a schedule, with those of `text` among them."""
    at_top = words & {"stream", "split", "each", "require", "capture"}
    if at_top and words & {"part", "order", "stagger"} and "each" not in words:
        # Statements of both levels, one after the other: the first paragraph is above.
        above, _, text = text.partition("\n\n")
    elif at_top:
        above, text = text, ""
    else:
        above = ""
    whole = f"{above}\n{text}"
    if "stream" not in words:
        names = [
            name
            for listed, one in re.findall(r"\bon (?:\[(.*?)\]|(\w+))", whole)
            for name in re.findall(r"\w+", listed or one)
            if name != "main"
        ]
        above += "".join(f"\nstream {name}" for name in dict.fromkeys(names))
    if "split" not in words and re.search(r"\[\d\]|\bstagger half|on \[", whole):
        count = max([1, *(int(n) for n in re.findall(r"\[(\d)\]", whole))]) + 1
        listed = re.search(r"\bon \[(.*?)\]", whole)
        count = max(count, listed[1].count(",") + 1 if listed else 0)
        above += f"\nsplit batch into {min(count, 3)} as half"
    if "each" in words:
        return textwrap.indent(above, "    ") + "\n"
    if "part" not in words:
        on = _streams(above)
        attn = f" on {on[0]}" if on else " on side"
        above += "" if on else "\nstream side"
        mlp = f" on {on[1]}" if len(on) > 1 else ""
        parts = f"part attn{attn} = .input_layernorm + .self_attn\n"
        parts += f"part mlp{mlp} = rest\n"
        text = f"{parts}\n{text}"
    if not words & {"order", "stagger"}:
        names = re.findall(r"^part (\w+)", text, re.M)
        if not re.search(r"\brest\b|= \.$", text, re.M):
            text += "\npart remaining = rest"
            names.append("remaining")
        text += "\norder:\n" + "".join(f"    {name}\n" for name in names)
    each = f"each layer in .model.layers.*:\n{textwrap.indent(text, '    ')}\n"
    return textwrap.indent(f"{above}\n{each}", "    ")


def _streams(text: str) -> list[str]:
    return re.findall(r"^stream (\w+)", text, re.M)


def examples(code: str) -> dict[str, list[str]]:
    """Indented blocks of a code's page, by the word of the paragraph above them."""
    found: dict[str, list[str]] = {"Wrong": [], "Instead": []}
    heading = ""
    for paragraph in re.split(r"\n\n(?! {4})", f"\n\n{explanations()[code].page}"):
        start = re.match(r"(Wrong|Instead)\b", paragraph)
        heading = start[1] if start else ""
        block = paragraph.partition("\n\n    ")[2]
        if heading and block:
            text = textwrap.dedent(f"    {block}")
            found[heading].append(text)
    return found


def codes_of(found: tuple[Diagnostic, ...], wanted: Collection[str]) -> set[str]:
    """Of warnings only those that are wanted: what an example is completed with often
    has a stream beside which nothing runs."""
    return {
        item.code
        for item in found
        if item.severity is not Severity.WARNING or item.code in wanted
    }


def is_text(code: str) -> bool:
    """Whether a code is about the text of a schedule, alone or with its model."""
    return (code[3] in "01236" or code == "DFS703") and code not in SHOWN_OTHERWISE


@pytest.mark.parametrize(("marks", "text"), BLOCKS)
def test_blocks_of_the_document(marks: list[str], text: str) -> None:
    kind, codes = marks[:1], {mark for mark in marks if mark.startswith("DFS")}
    assert set(marks) <= {"fragment", *codes}
    found = findings(completed(text) if kind == ["fragment"] else text)
    assert codes_of(found, codes) == codes, (text, [item.message for item in found])
    assert [code for code in codes if DOCUMENT.count(code) < 2] == []


def test_all_statements_have_a_block() -> None:
    shown = "".join(text for _, text in BLOCKS)
    for word in ("model", "schedule", "stream", "split", "each", "part", "order:"):
        assert re.search(rf"^ *{word}", shown, re.M)
    assert "stagger half by" in shown


def test_windows_of_the_stagger() -> None:
    """The windows that the document prints are those that the compiler makes."""
    (text,) = [text for _, text in BLOCKS if "attn_out" in text and "stagger" in text]
    file = pipeline.understand(Source("s.dfs", completed(text))).unwrap()
    windows = [window.text for window in file.schedules[0].sections[0].windows]
    printed = re.findall(r"^```text\n(.*?)^```", DOCUMENT, re.M | re.S)
    spaced = [[" ".join(line.split()) for line in p.splitlines()] for p in printed]
    assert windows in spaced


def test_rows_of_the_split() -> None:
    section = DOCUMENT.partition("| rows |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| `(.+?)` \| (.+?) \|$", section, re.M)
    assert len(rows) > 4
    for total, into, said in rows:
        listed, _, align = into.partition(" (align = ")
        split = Split(
            "batch",
            weights=re.findall(r"[\d.]+", listed)
            if "[" in listed
            else [1] * int(listed),
            align=int(align.rstrip(")") or 1),
        )
        if not split.fills(int(total)):
            assert said == "`sequential`"
            continue
        made = [piece.stop - piece.start for piece in split.slices(int(total))]
        assert said == ", ".join(map(str, made))


def test_reserved_words_are_listed() -> None:
    section = DOCUMENT.partition("\n## Words")[2].partition("\n## ")[0]
    listed = set(" ".join(re.findall(r"^    (.*)$", section, re.M)).split())
    assert listed == RESERVED


def test_every_code_is_in_the_table() -> None:
    listed = re.findall(r"^\| (DFS\d{3}) \|", DOCUMENT, re.M)
    assert listed == sorted(explanations())


@pytest.mark.parametrize("code", explanations())
def test_pages_show_what_is_wrong_and_what_is_right(code: str) -> None:
    shown = examples(code)
    if code[3] not in "89":
        assert "\nWrong" in f"\n{explanations()[code].page}"
    assert "Instead" in explanations()[code].page
    if not is_text(code):
        return
    assert shown["Wrong"]
    assert "Instead: " in explanations()[code].page or shown["Instead"]
    for text in shown["Wrong"]:
        found = findings(completed(text), code)
        assert codes_of(found, {code}) == {code}, (
            text,
            [item.message for item in found],
        )
    for text in shown["Instead"]:
        found = findings(completed(text), code)
        assert codes_of(found, {code}) == set(), (
            text,
            [item.message for item in found],
        )


@pytest.mark.parametrize("code", explanations())
def test_pages_keep_their_width(code: str) -> None:
    assert max(map(len, explanations()[code].page.splitlines())) <= 90
