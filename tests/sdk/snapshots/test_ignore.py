"""Ignore rules mean what git says they mean."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shunter.sdk.snapshots.ignore import IgnoreFile
from shunter.sdk.snapshots.walk import walk

# No "a**": up to version 2.39 git compares unrelated pointers there, and what it means depends on the memory.
NAMES = ["a", "b", "ab", "data", "x.py", "x.ckpt", "[z]", "a b", "B"]
words = st.sampled_from(
    [
        *("a", "b", "ab", "data", "x.py", "a b", "*", "**", "***", "?", "*.py", "*.ckpt", "a*", "*a*", "x.*", "d?t?"),
        *("[ab]", "[!a]", "[^ab]", "[a-b]*", "[b-a]", "[\\a-b]", "[]a]", "[!]a]", "[a-]", "[/a]", "[]", "[z]"),
        *("[[:upper:]]", "[[:nonsense:]]", "\\[z\\]", "a\\ b", "a\\"),
    ]
)


@st.composite
def rules(draw: st.DrawFn) -> str:
    words_in = draw(st.lists(words, min_size=1, max_size=3))
    return (
        draw(st.sampled_from(["", "", "!"]))
        + draw(st.sampled_from(["", "", "/"]))
        + "/".join(words_in)
        + draw(st.sampled_from(["", "", "/", " ", "/**"]))
    )


paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge here")
@settings(
    max_examples=int(os.environ.get("IGNORE_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sets(paths, min_size=1, max_size=12), st.lists(rules(), max_size=5), st.lists(rules(), max_size=2))
def test_the_walk_keeps_what_git_would_add(
    tmp_path: Path, wanted: set[str], root_rules: list[str], nested_rules: list[str]
) -> None:
    tree = fresh(tmp_path / "tree")
    for path in sorted(wanted):
        file = tree / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
        except OSError:
            continue  # the one is a file where the other needs a folder
    (tree / ".gitignore").write_text("\n".join(root_rules) + "\n")
    if nested_rules and (tree / "a").is_dir():
        (tree / "a" / ".gitignore").write_text("\n".join(nested_rules) + "\n")
    ours = sorted(path for path, _ in walk(str(tree)).files)
    assert ours == what_git_adds(tree)


@pytest.mark.parametrize(
    ("rules", "ignored", "kept"),
    [
        (["*.ckpt", "!best.ckpt"], ["a.ckpt", "d/a.ckpt"], ["best.ckpt", "d/best.ckpt"]),
        (["/data"], ["data"], ["src/data", "data2"]),
        (["docs/build"], ["docs/build"], ["x/docs/build"]),
        (["**/cache"], ["cache", "a/b/cache"], ["cached"]),
        (["a/**/z"], ["a/z", "a/b/z", "a/b/c/z"], ["z", "b/a/z"]),
        (["a/**"], ["a/b", "a/b/c"], ["a", "b/a"]),
        (["# comment", "", "   ", "\\#real", "\\!odd"], ["#real", "!odd"], ["comment", "real"]),
        (["trailing   ", "kept\\ "], ["trailing", "kept "], ["kept"]),
        (["*.py[cod]", "*$py.class"], ["a.pyc", "x$py.class"], ["a.py", "x.class"]),
        (["log?.txt", "[0-9]*"], ["log1.txt", "7up"], ["log12.txt", "log/.txt", "up7"]),
        (["ends\r"], ["ends"], ["ends\r"]),
        (["a+b(c).{2}|^$"], ["a+b(c).{2}|^$"], ["aab", ""]),
    ],
)
def test_a_table_of_rules(rules: list[str], ignored: list[str], kept: list[str]) -> None:
    file = IgnoreFile(rules)

    def is_ignored(path: str) -> bool:
        rule = file.verdict(path.rpartition("/")[2], path, is_folder=False)
        return rule is not None and not rule.negated

    assert [path for path in ignored + kept if is_ignored(path)] == ignored


def test_a_rule_for_folders_leaves_files_alone() -> None:
    file = IgnoreFile(["build/"])
    assert file.verdict("build", "x/build", is_folder=True)
    assert not file.verdict("build", "x/build", is_folder=False)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def what_git_adds(tree: Path) -> list[str]:
    """The files that git would add. The bare repository is outside, made once, so the tree stays as it is."""
    git = tree.parent / "judge.git"
    env = {**os.environ, "GIT_DIR": str(git), "GIT_WORK_TREE": str(tree), "GIT_CONFIG_GLOBAL": os.devnull}
    if not git.exists():
        subprocess.run(["git", "init", "-q"], env=env, check=True, cwd=tree)
    listed = subprocess.run(
        ["git", "ls-files", "-o", "-z", "--exclude-per-directory=.gitignore"],
        env=env, cwd=tree, check=True, capture_output=True,
    )  # fmt: skip
    return sorted(name.decode() for name in listed.stdout.split(b"\0") if name)
