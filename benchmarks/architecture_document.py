"""The results of `benchmarks.architectures` as a page.

python -m benchmarks.architecture_document RESULTS.json docs/architectures.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = """# Architectures

Which models of transformers can be split along the batch, and why the others cannot.
Written by

```sh
python -m benchmarks.architectures --output benchmarks/results/architectures.json
python -m benchmarks.architecture_document \\
    benchmarks/results/architectures.json docs/architectures.md
```

Each class is built with a tiny random configuration, traced as a whole without a cache,
and every operation of it is checked (no part of it is taken on trust). Two runs of the
model itself, which know neither the graph nor a rule, judge the verdict: five rows in
pieces against the five at once, and five rows of which one is replaced, by other values
and by NaN. *Leaks* says whether one of them showed a difference.
"""


def document(found: Mapping[str, Any]) -> str:
    """The page: counts, a table, and the refusals."""
    rows = found["rows"]
    return "\n".join([_HEAD, *_counts(found, rows), *_table(rows), *_refusals(rows)])


def _leaks(row: Mapping[str, Any]) -> str:
    """Which of the two runs of the model showed that rows are mixed."""
    ran = not row["pieces"].startswith("does not run")
    return row["leak"] or (row["pieces"] if ran else "")


def _counts(
    found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    verdicts = Counter(row["verdict"] for row in rows)
    alike = sum("Llama-like" in row["group"] for row in rows)
    machine = found["machine"]
    missing = [r for r in rows if r["verdict"] == "refused" and not _leaks(r)]
    unsound = [r for r in rows if r["verdict"] == "accepted" and _leaks(r)]
    yield f"torch {machine['torch']}, transformers {machine['transformers']}:"
    yield f"{len(rows)} architectures, {alike} of them like Llama;"
    yield ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    yield f"(accepted and leaking: {len(unsound)}; refused without a leak:"
    yield f"{len(missing)}, see [rowwise.md](rowwise.md#what-is-not-proved))."
    yield ""


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| architecture | kind | operations | operators | verdict | leaks |"
    yield "|---|---|---:|---:|---|---|"
    for row in rows:
        sizes = (
            f"{row['operations']} | {row['operators']}" if row["operations"] else "|"
        )
        yield (
            f"| {row['name']} | {row['group']} | {sizes} | {row['verdict']} | "
            f"{'yes' if _leaks(row) else 'no'} |"
        )
    yield ""


def _refusals(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "## Refused\n"
    for row in rows:
        if row["verdict"] != "refused":
            continue
        shown = _leaks(row) or "no leak shows"
        yield f"- **{row['name']}** ({shown})"
        for operator, reason, line in dict.fromkeys(
            (item["operator"], item["reason"], item["line"]) for item in row["refused"]
        ):
            yield f"  - `{operator}`: {reason}, at `{line}`"
    yield "\n## Not traced\n"
    yield "These have no graph, so there is nothing to check.\n"
    for row in rows:
        if row["verdict"] in ("not traced", "failed"):
            yield f"- **{row['name']}**: {row['reason']}"
    yield ""


def main(given: Sequence[str]) -> int:
    """Read the results and write the page."""
    source, target = map(Path, given)
    found = json.loads(source.read_text(encoding="utf-8"))
    target.write_text(document(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
