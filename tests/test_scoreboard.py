"""The document's code blocks are cut out as they are. Which of them run is said by tests/journeys/test_documents.py."""

from __future__ import annotations

import pytest

from documents import DOCUMENTS, NOT_YET, OWN_WORDS, Block, blocks  # type: ignore[import-not-found,unused-ignore]


def test_code_blocks_are_read_with_their_titles() -> None:
    text = "# One\n```python\na = 1\n```\n## <a id='x'></a>Two\n  ```\n  b = 2\n    c = 3\n  ```\n```python\nd\n```\n"
    assert blocks(text) == [Block("One", "a = 1"), Block("Two 1", "b = 2\n  c = 3"), Block("Two 2", "d")]


def test_every_block_is_python_and_every_one_that_waits_is_in_the_document() -> None:
    document = next(iter(sorted(DOCUMENTS.glob("004*"))), None)
    if document is None:
        pytest.skip("the document is not here")
    found = blocks(document.read_text())
    for block in found:
        compile(block.code, block.title, "exec")
    assert NOT_YET.keys() <= {block.title for block in found}


def test_our_own_words_cover_all_that_runs() -> None:
    document = next(iter(sorted(DOCUMENTS.glob("004*"))), None)
    if document is None:
        pytest.skip("the document is not here")
    theirs = [block for block in blocks(document.read_text()) if block.title not in NOT_YET]
    assert len(theirs) == len(OWN_WORDS)
