"""Secrets do not come home, wherever the reports are cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shunter.server.collect.masking import Masker

SECRET = "s3cr3t-value!"


def test_a_secret_becomes_stars_of_its_length() -> None:
    assert Masker([SECRET]).take(b"a " + SECRET.encode() + b" b\n") == b"a ************* b\n"


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_across_a_border_is_hidden(cut: int) -> None:
    masker = Masker([SECRET, "s3cret"])
    text = ("say " + SECRET + " now").encode()
    at, held = 0, b""
    for size in (4 + cut, len(text)):
        held += masker.take(text[at:size])
        at = len(held)
    assert held == b"say ************* now"


@pytest.mark.parametrize("seed", range(20))
def test_wherever_the_reports_are_cut_nothing_leaks_and_nothing_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    secrets = [SECRET, "aaaa", "aaab", "ab" * 10]
    words = [*secrets, "a", "aa", "s3cr3t", "hello ", "\n", "abab"]
    text = "".join(chance.choice(words) for _ in range(200)).encode()
    masker = Masker(secrets)
    held = b""
    end = 0
    while end < len(text):
        end = min(len(text), end + chance.randint(1, 15))
        held += masker.take(text[len(held) : end])
    held += masker.take(text[len(held) :], last=True)
    assert len(held) == len(text)
    assert not any(secret.encode() in held for secret in secrets)
    assert held.replace(b"*", b"").strip(b"") != b""


def test_the_lines_of_a_key_are_hidden_one_by_one() -> None:
    key = "-----BEGIN KEY-----\nMIIabcdef\nxyz12345\n-----END KEY-----"
    said = Masker([key]).take(b"first MIIabcdef\nthen xyz12345.\n")
    assert said == b"first *********\nthen ********.\n"


def test_what_is_said_at_the_very_end_is_not_held_back() -> None:
    masker = Masker([SECRET])
    assert masker.take(b"bye s3") == b"bye "
    assert masker.take(b"bye s3", last=True) == b"bye s3"
    assert masker.take(b"bye s3cr3t-", last=True) == b"bye *******"


def test_words_of_an_outcome_are_masked() -> None:
    assert Masker([SECRET]).words({"outcome": {"message": f"x {SECRET}", "code": 1}}) == {
        "outcome": {"message": "x *************", "code": 1}
    }


def test_a_file_is_masked_across_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.server.collect.masking._BLOCK", 10)
    file = tmp_path / "x.log"
    file.write_text(f"{'.' * 5}{SECRET}{'.' * 7}{SECRET}")
    Masker([SECRET]).hide_in_file(file)
    assert file.read_text() == f"{'.' * 5}{'*' * 13}{'.' * 7}{'*' * 13}"


def test_short_values_are_left_alone() -> None:
    assert Masker(["1", "no"]).take(b"1 no 11") == b"1 no 11"
