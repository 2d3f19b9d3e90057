"""Translation by rules, through a command that behaves as apertium does."""

import os
import stat
import sys
import textwrap
import time

import pytest

from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineError
from speechframe.local.engines.translation import apertium
from speechframe.local.engines.translation.apertium import ApertiumTranslator

# Behaves as the real command does where it is used: modes by -l, a stream where brackets pass through and signs
# are escaped, marks of unknown words unless -u. Its only pair swaps a few words; oc-ca hangs, ca-oc fails.
FAKE = r"""
import re, sys, time
words = dict(house="casa", big="grande", the="la", where="dónde", station="estación", thank="gracias", you="usted")
arguments = sys.argv[1:]
if arguments == ["-l"]:
    print("  eng-spa\n  es-pt_BR\n  oc-ca\n  ca-oc\n  spa-eng_US\n  oci@aran-spa\n  cat-por_ABC")
elif arguments == ["-V"]:
    print("apertium 3.8.3")
else:
    mode = arguments[-1]
    assert arguments[:-1] == ["-u", "-f", "none"], arguments
    stream = sys.stdin.buffer.read().decode()
    if mode == "oc-ca":
        time.sleep(600)
    if mode == "ca-oc":
        sys.exit(1)
    assert not re.search(r"[\^$@<>{}]", re.sub(r"\[(?:[^\]\\]|\\.)*\]|\\.", "", stream)), "signs must be escaped"
    drop = "lose" in stream
    def one(match):
        if match[1] or match[2]:
            return "" if drop and stream.count("speechframe:") > 1 and "speechframe:0" in match[0] else match[0]
        word = match[3]
        other = words.get(word.lower(), word)
        return other.capitalize() if word[0].isupper() else other
    out = re.sub(r"(\[(?:[^\]\\]|\\.)*\])|(\\.)|([^\W\d_]+)", one, stream, flags=re.S)
    sys.stdout.buffer.write(out.encode())
"""

EN_ES = TranslationPair("en", "es", Quality.ROUGH)


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """A machine where the command is found."""
    command = tmp_path / "bin" / "apertium"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\n{textwrap.dedent(FAKE)}")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    apertium._read_modes.cache_clear()
    apertium._find_version.cache_clear()
    yield ApertiumTranslator()
    apertium._read_modes.cache_clear()
    apertium._find_version.cache_clear()


@pytest.fixture
def no_rules(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    apertium._read_modes.cache_clear()
    yield ApertiumTranslator()
    apertium._read_modes.cache_clear()


def test_the_modes_on_the_machine_are_pairs_and_variants_are_not(rules):
    assert rules.version == "3.8.3"
    assert set(rules.pairs()) == {
        EN_ES,
        TranslationPair("es", "pt-BR", Quality.RULES),
        TranslationPair("oc", "ca", Quality.RULES),
        TranslationPair("ca", "oc", Quality.RULES),
        TranslationPair("es", "en-US", Quality.RULES),
    }


def test_without_the_command_there_is_no_pair_and_it_says_what_to_do(no_rules):
    assert no_rules.pairs() == ()
    with pytest.raises(EngineError, match="apt install"):
        _ = no_rules.version


def test_a_list_that_could_not_be_read_is_read_again(rules, tmp_path):
    command = tmp_path / "bin" / "apertium"
    works = command.read_text()
    command.write_text("#!/bin/sh\nexit 1\n")
    assert rules.pairs() == ()
    command.write_text(works)
    assert EN_ES in rules.pairs()


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("  the  house \n\n\tbig\r\n", "  la  casa \n\n\tgrande\r\n"),
        (r"the [house] {big you} <b>$5 ^a \n 1/2 @ you", r"la [casa] {grande usted} <b>$5 ^a \n 1/2 @ usted"),
        (r"the %{house} [/big] house", r"la %{house} [/big] casa"),
        ("the [speechframe:0] house", "la [speechframe:0] casa"),
        ("house.[]", "casa.[]"),
        ("", ""),
        ("Kilimanjaro house", "Kilimanjaro casa"),
    ],
)
def test_texts_go_through_the_stream_and_come_back_whole(rules, text, translation):
    assert rules.translate([text], EN_ES) == [translation]
    assert rules.translate(["the house", text, "big"], EN_ES) == ["la casa", translation, "grande"]


def test_a_separator_that_is_lost_costs_no_text(rules):
    texts = ["lose the house", "big house", "12"]
    assert rules.translate(texts, EN_ES) == ["lose la casa", "grande casa", "12"]


def test_a_command_that_hangs_is_ended(rules, monkeypatch):
    monkeypatch.setattr(apertium, "_BASE_TIMEOUT_S", 0.5)
    started = time.monotonic()
    with pytest.raises(EngineError, match="took longer"):
        rules.translate(["casa"], TranslationPair("oc", "ca", Quality.RULES))
    assert time.monotonic() - started < 10


def test_a_command_that_fails_is_an_error(rules):
    with pytest.raises(EngineError, match="status 1"):
        rules.translate(["casa"], TranslationPair("ca", "oc", Quality.RULES))
    with pytest.raises(EngineError, match="no pair from en to fr"):
        rules.translate(["casa"], TranslationPair("en", "fr", Quality.RULES))
