"""How many code blocks of the document that we stand in for run today.

The document is not ours to copy: it is read from `shared/seeds` beside the repository where that is there. Elsewhere
the scoreboard lists the workflows by name.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

DOCUMENTS = Path(__file__).parents[2] / "shared" / "seeds"

#: The workflows, where the document is not at hand.
WORKFLOWS = (
    "System-managed environment",
    "User-managed environment",
    "Local computer",
    "Run-based creation",
    "Persistent compute",
    "Remote virtual machines",
    "HDInsight",
    "Create an experiment",
    "Submit the experiment",
)

#: Titles of blocks that run, checked by the tests of `shunter.azureml`. None yet.
RUNS_TODAY: frozenset[str] = frozenset()


class Block(NamedTuple):
    title: str
    code: str


def blocks(text: str) -> list[Block]:
    """The code blocks of a document, each titled with its heading and, where there are several, a number."""
    found: list[tuple[str, str]] = []
    heading, fence = "", ""
    lines: list[str] = []
    for line in text.splitlines():
        if fence:
            if line.strip() == "```":
                found.append((heading, "\n".join(row.removeprefix(fence) for row in lines)))
                fence, lines = "", []
            else:
                lines.append(line)
        elif match := re.match(r"(\s*)```(python)?\s*$", line):
            fence = match[1] or "\0"
        elif match := re.match(r"#+\s+(.*)", line):
            heading = re.sub(r"<[^>]*>", "", match[1]).strip()
    names = [name for name, _ in found]
    titled = []
    for index, (name, code) in enumerate(found):
        number = names[: index + 1].count(name)
        titled.append(Block(f"{name} {number}" if names.count(name) > 1 else name, code))
    return titled


def test_code_blocks_are_read_with_their_titles() -> None:
    text = "# One\n```python\na = 1\n```\n## <a id='x'></a>Two\n  ```\n  b = 2\n    c = 3\n  ```\n```python\nd\n```\n"
    assert blocks(text) == [Block("One", "a = 1"), Block("Two 1", "b = 2\n  c = 3"), Block("Two 2", "d")]


def test_the_scoreboard_says_which_code_blocks_run_today(record_property: Callable[[str, object], None]) -> None:
    document = next(iter(sorted(DOCUMENTS.glob("004*"))), None)
    titles = [block.title for block in blocks(document.read_text())] if document else list(WORKFLOWS)
    assert titles
    assert set(titles) >= RUNS_TODAY, "a block that is said to run is not in the document"
    assert not RUNS_TODAY or importlib.util.find_spec("shunter.azureml") is not None
    runs = [title for title in titles if title in RUNS_TODAY]
    where = "the document's code blocks" if document else "the document's workflows (the document is not here)"
    lines = [f"Scoreboard: {len(runs)} of {len(titles)} of {where} run today"]
    lines += [f"  [{'x' if title in runs else ' '}] {title}" for title in titles]
    record_property("table", lines)
