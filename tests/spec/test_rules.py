"""Every rule of the document is proved by a test that names it, as soon as its chapter is served."""

import re
import tomllib
from collections import Counter
from pathlib import Path

from speechframe.local.service.app import HANDLERS
from speechframe.spec.endpoints import get_endpoint

TESTS = Path(__file__).resolve().parents[1]
FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
RULES = {rule["id"]: rule for rule in FACTS["rule"]}
CHAPTERS = {"generate", "voices", "auth", "streaming", "changer", "translate", "dubbing"}
# Text, not collected markers: whoever runs one folder alone must get the same answer.
NAMED = re.compile(r"\brule\(([^()]*)\)")


def ids_in(source: str) -> set[str]:
    return {name for call in NAMED.findall(source) for name in re.findall(r'"([^"]+)"', call)}


def ids_named_by_tests() -> set[str]:
    return {name for path in TESTS.rglob("test_*.py") for name in ids_in(path.read_text(encoding="utf-8"))}


def due(rules, served) -> set[str]:
    return {rule["id"] for rule in rules if "later" not in rule or rule["later"] in served}


def test_every_rule_that_is_due_is_named_by_a_test():
    assert sorted(due(FACTS["rule"], FACTS["served"]) - ids_named_by_tests()) == []


def test_tests_name_only_rules_that_exist():
    assert sorted(ids_named_by_tests() - set(RULES)) == []


def test_served_chapters_are_those_of_the_service():
    served = {get_endpoint(name).chapter.name for name in HANDLERS if not get_endpoint(name).addition}
    assert served == set(FACTS["served"])


def test_ids_are_unique_and_chapters_known():
    assert [name for name, count in Counter(rule["id"] for rule in FACTS["rule"]).items() if count > 1] == []
    assert {rule["later"] for rule in FACTS["rule"] if "later" in rule} <= CHAPTERS - {
        "generate",
        "voices",
        "auth",
    }
    assert all(rule["words"].endswith(".") and rule["section"] for rule in FACTS["rule"])


def test_the_scan_reads_one_and_several_ids_and_nothing_else():
    mark = "@pytest.mark." + "rule"
    source = f'{mark}("a.b")\n{mark}(\n    "c.d",\n    "e.f",\n)\nsome_rule("x.y")\n'
    assert ids_in(source) == {"a.b", "c.d", "e.f"}


def test_a_later_rule_is_due_once_its_chapter_is_served():
    rules = [{"id": "a"}, {"id": "b", "later": "streaming"}, {"id": "c", "later": "dubbing"}]
    assert due(rules, ["generate"]) == {"a"}
    assert due(rules, ["generate", "streaming"]) == {"a", "b"}
