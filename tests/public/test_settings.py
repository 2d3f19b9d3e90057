"""Where calls go and what they may cost: precedence, completeness, and keys that never show."""

import math
import traceback
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from tests.rooms import scripted

import speechframe as spf
from speechframe.settings import (
    FIELD_BY_VARIABLE,
    Settings,
    check_address,
    find_default_cache_folder,
    read_settings,
    resolve_settings,
)
from speechframe.settings.spending import read_spending_rules

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_argument_beats_configure_beats_environment_beats_file(tmp_path, monkeypatch):
    (tmp_path / "speechframe.toml").write_text('api_key = "file"\nbase_url = "https://file.example"\n')
    assert resolve_settings().base_url == "https://file.example"
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", "https://environment.example")
    assert resolve_settings().base_url == "https://environment.example"
    spf.configure(base_url="https://configured.example")
    assert resolve_settings().base_url == "https://configured.example"
    assert resolve_settings(base_url="https://argument.example").base_url == "https://argument.example"
    spf.configure(base_url=None)
    assert resolve_settings().base_url == "https://environment.example"


def test_every_variable_sets_its_field(monkeypatch, tmp_path):
    values = {
        "SPEECHFRAME_API_KEY": KEY,
        "SPEECHFRAME_DUB_API_KEY": f"{KEY} of dubbing",
        "SPEECHFRAME_WEBHOOK_SECRET": f"{KEY} of webhooks",
        "SPEECHFRAME_BASE_URL": "https://speech.example",
        "SPEECHFRAME_REGIONS": "global",
        "SPEECHFRAME_PROFILE": "team",
        "SPEECHFRAME_SERVICE": str(tmp_path),
        "SPEECHFRAME_LEDGER": str(tmp_path / "ledger"),
        "SPEECHFRAME_CACHE": "~/calls",
    }
    assert set(values) == set(FIELD_BY_VARIABLE)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "speechframe.toml").write_text("[profiles.team]\n")
    found = resolve_settings()
    assert (found.regions, found.profile, found.service) == (("global",), "team", tmp_path)
    assert found.identity() == "team"
    assert found.ledger == tmp_path / "ledger"
    assert found.cache == Path.home() / "calls"
    assert found.dub_api_key.get_secret_value().endswith("of dubbing")
    assert KEY not in repr(found)


def test_a_profile_that_no_file_has_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_PROFILE", "nope")
    path = tmp_path / "speechframe.toml"
    for content, state in ((None, "does not exist"), ("cache_max_gb = 5\n", "has no profiles")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(spf.SettingsError) as caught:
            resolve_settings()
        assert f"there is no profile 'nope', because {path} {state}" in str(caught.value)
    assert read_spending_rules(Settings(profile="own")).budgets == (), "a name given as service="


def test_profiles_of_the_file(tmp_path):
    (tmp_path / "speechframe.toml").write_text(
        'api_key = "common"\n[profiles.work]\nbase_url = "https://work.example"\n'
        '[profiles.my-key]\nbase_url = "https://home.example"\napi_key = "own"\n'
    )
    assert resolve_settings(profile="work").base_url == "https://work.example"
    assert resolve_settings(profile="my-key").api_key == SecretStr("own")
    with pytest.raises(spf.SettingsError, match="work, my-key"):
        resolve_settings(profile="school")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"api_key": KEY}, "SPEECHFRAME_BASE_URL"),
        ({"base_url": "https://speech.example"}, "SPEECHFRAME_API_KEY"),
        ({"base_url": "https://speech.example", "dub_api_key": KEY}, "only a dubbing key"),
        ({"api_key": KEY, "base_url": "speech.example"}, "is not an address"),
        ({"api_key": KEY, "base_url": "https://me:pw@speech.example"}, "user name or password"),
        ({"api_key": KEY, "base_url": "http://speech.example"}, "plain http"),
        ({"api_key": KEY, "base_url": "https://a.example", "regions": ["mars"]}, "us-east"),
        ({"api_key": KEY, "base_url": "https://a.example", "regions": ["us-east"]}, "has no address"),
        ({"api_key": " ", "base_url": "https://a.example"}, "the api key is empty"),
        ({"colour": "red"}, "no setting 'colour'"),
        ({"max_credits": 5}, "Options of a run, such as max_credits, go into its call"),
        ({"cache_max_gb": -1}, "cache_max_gb=-1; allowed: a number of at least 0"),
        ({"cache_max_age_days": float("nan")}, "a number of at least 0"),
        (
            {"max_credits_per_run": 1e308},
            "a number of credits from 0 to 1,000,000,000,000,000, inf for no limit",
        ),
        ({"cache": Path("s3://bucket/calls")}, "is an address; allowed: a path of this machine"),
        ({"ledger": "a\0b"}, "has a NUL character"),
        ({"regions": ["us-east", "uk", "us-east"]}, "us-east twice; allowed, each once: global, us-east"),
        ({"service": "~nosuchuser/x"}, "without ~"),
    ],
)
def test_what_is_incomplete_says_what_to_set(given, words):
    with pytest.raises(spf.SettingsError, match=words) as caught:
        resolve_settings(**given)
    assert KEY not in str(caught.value)
    assert "pw" not in str(caught.value)


def test_no_cache_is_set_unless_it_is_asked_for_and_its_limits_are_stated():
    found = resolve_settings()
    assert (found.cache, found.cache_max_gb, found.cache_max_age_days) == (None, 10, None)


def test_the_file_sets_the_cache_and_its_limits(tmp_path, monkeypatch):
    (tmp_path / "speechframe.toml").write_text(
        'cache = "~/answers"\ncache_max_gb = inf\ncache_max_age_days = 30\n'
    )
    found = resolve_settings()
    assert found.cache == Path.home() / "answers"
    assert (found.cache_max_gb, found.cache_max_age_days) == (float("inf"), 30)
    monkeypatch.setenv("SPEECHFRAME_CACHE", str(tmp_path / "environment"))
    assert resolve_settings().cache == tmp_path / "environment"
    assert resolve_settings(cache="given").cache == Path("given")


def test_settings_without_a_service_can_be_read_and_not_resolved(monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_API_KEY", KEY)
    monkeypatch.setenv("SPEECHFRAME_CACHE", "here")
    assert read_settings().cache == Path("here")
    with pytest.raises(spf.SettingsError, match="SPEECHFRAME_BASE_URL"):
        resolve_settings()


def test_the_default_cache_lies_in_the_user_s_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_default_cache_folder() == tmp_path / "speechframe" / "calls"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert find_default_cache_folder() == Path.home() / ".cache" / "speechframe" / "calls"


@pytest.mark.parametrize("value", ["", 3])
def test_the_run_option_of_the_cache_is_a_folder_or_a_switch(value):
    for good in ("here", Path("here"), True, False):
        spf.configure(cache=good)
    with pytest.raises(spf.SettingsError, match="allowed: a folder, True or False"):
        spf.configure(cache=value)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "speechframe.toml").write_text("api_key = ")
    with pytest.raises(spf.SettingsError, match=r"speechframe\.toml cannot be read"):
        resolve_settings()


def test_configure_takes_settings_and_run_options_and_nothing_else(tmp_path):
    (tmp_path / "speechframe.toml").write_text("[profiles.team]\n")
    spf.configure(max_concurrency=3, profile="team")
    assert resolve_settings().profile == "team"
    with pytest.raises(spf.SettingsError):
        spf.configure(max_concurrency=0)
    with pytest.raises(spf.SettingsError, match="speed"):
        spf.configure(speed=3)


@pytest.mark.parametrize(
    "values",
    [
        {"profile": "other", "speed": 3},
        {"profile": "other", "base_url": 5},
        {"profile": "other", "max_credits": 9, "on_error": "cry"},
    ],
)
def test_what_configure_refuses_changes_nothing(values, tmp_path):
    (tmp_path / "speechframe.toml").write_text("[profiles.team]\n")
    spf.configure(max_credits=3, profile="team")
    with pytest.raises(spf.SettingsError):
        spf.configure(**values)
    assert (read_settings().profile, read_settings().base_url, read_settings().regions) == ("team", None, ())
    assert scripted.make(tmp_path / "run", ["a", "b", "c", "d"]).stats["done"] == 3


def test_configured_tags_are_the_caller_s_own():
    tags = {"keyword": "ads"}
    spf.configure(tags=tags)
    assert tags == {"keyword": "ads"}


def test_names_have_no_space_around_them_and_none_is_empty():
    assert read_settings(regions=["us-east ", ""], require_tags=" team,, ").regions == ("us-east",)
    assert read_settings(require_tags=" team,, ").require_tags == ("team",)


def test_a_report_with_locals_shows_options_that_were_refused():
    with pytest.raises(spf.SettingsError) as refused:
        spf.configure(max_credits=-1)
    report = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
    assert "max_credits=-1; allowed" in "".join(report.format())


def test_regions_and_their_order():
    found = Settings(
        api_key=SecretStr(KEY),
        base_url="https://any.example",
        regions=("eu-central", "us-east"),
        region_urls={"us-east": "https://us.example/", "eu-central": "https://eu.example"},
    )
    assert found.addresses() == {
        "eu-central": "https://eu.example", "us-east": "https://us.example", "global": "https://any.example",
    }  # fmt: skip


@pytest.mark.parametrize("host", ["localhost", "[::1]", "127.8.9.10", "[::ffff:127.0.0.1]"])
def test_plain_http_to_this_machine(host):
    check_address(f"http://{host}:8099")


# -- what may be spent ---------------------------------------------------------------

HANDED_IN = Settings(api_key=SecretStr(KEY), base_url="https://speech.example")


def test_limits_hold_for_a_service_that_is_handed_in_too(tmp_path):
    (tmp_path / "speechframe.toml").write_text("max_credits_per_run = 500\nmax_credits_per_month = 9000.5\n")
    for service in (HANDED_IN, resolve_settings()):
        rules = read_spending_rules(service)
        assert (rules.max_credits_per_run, rules.max_credits_per_month) == (500, 9000.5)
        assert rules.run_rule_from == rules.month_rule_from == str(tmp_path / "speechframe.toml")


def test_an_argument_beats_configure_beats_the_file_for_limits_too(tmp_path):
    (tmp_path / "speechframe.toml").write_text("max_credits_per_run = 500\nmax_credits_per_month = 9000\n")
    spf.configure(max_credits_per_run=300)
    rules = read_spending_rules(HANDED_IN)
    assert (rules.max_credits_per_run, rules.run_rule_from) == (300, "configure()")
    assert rules.max_credits_per_month == 9000
    assert read_spending_rules(resolve_settings()).run_rule_from == "configure()"
    own = read_spending_rules(Settings(max_credits_per_run=20))
    assert (own.max_credits_per_run, own.run_rule_from) == (20, "the settings given as service=")
    spf.configure(max_credits_per_run=None)
    assert read_spending_rules(HANDED_IN).max_credits_per_run == 500


def test_a_profile_may_have_limits_of_its_own(tmp_path):
    (tmp_path / "speechframe.toml").write_text(
        "max_credits_per_run = 500\n[profiles.team]\nmax_credits_per_run = 50\nmax_credits_per_month = 60\n"
        'require_tags = ["team"]\n'
    )
    rules = read_spending_rules(Settings(profile="team"))
    assert rules.require_tags == ("team",)
    assert (rules.max_credits_per_run, rules.max_credits_per_month) == (50, 60)
    assert rules.run_rule_from == f"{tmp_path / 'speechframe.toml'}, [profiles.team]"
    # The name of a service that is handed in need not stand in the file.
    assert read_spending_rules(Settings(profile="other")).max_credits_per_run == 500


def test_without_limits_there_are_none(tmp_path):
    rules = read_spending_rules(HANDED_IN)
    assert (rules.max_credits_per_run, rules.max_credits_per_month) == (None, None)
    assert rules.compute_run_limit(None) is None
    assert rules.compute_run_limit(7) == 7
    assert read_spending_rules(Settings(max_credits_per_run=math.inf)).max_credits_per_run is None


def test_a_run_that_asks_for_more_than_the_house_allows_is_refused_by_name(tmp_path):
    (tmp_path / "speechframe.toml").write_text("max_credits_per_run = 1234567\n")
    rules = read_spending_rules(HANDED_IN)
    assert rules.compute_run_limit(None) == 1234567
    assert rules.compute_run_limit(1234567) == 1234567
    assert rules.compute_run_limit(0) == 0
    for asked, words in ((1234567.5, "max_credits=1234567.5"), (math.inf, "max_credits=inf")):
        with pytest.raises(spf.SettingsError, match=words) as caught:
            rules.compute_run_limit(asked)
        assert "max_credits_per_run=1234567 " in str(caught.value)
        assert str(tmp_path / "speechframe.toml") in str(caught.value)


@pytest.mark.parametrize("name", ["max_credits_per_run", "max_credits_per_month"])
def test_a_limit_is_a_number_of_credits(name, tmp_path):
    for value in (-1, math.nan, "100", True):
        for make in (Settings, spf.configure):
            with pytest.raises(spf.SettingsError, match=f"{name}=.*a number of credits"):
                make(**{name: value})
    (tmp_path / "speechframe.toml").write_text(f'{name} = "100"\n')
    with pytest.raises(spf.SettingsError, match=f"{name}=.*a number of credits"):
        read_spending_rules(HANDED_IN)
    for make in (Settings, spf.configure):
        with pytest.raises(
            spf.SettingsError, match=f"{name}=1000.*; allowed: .* to 1,000,000,000,000,000, inf for no limit"
        ):
            make(**{name: 10**400})
        with pytest.raises(spf.SettingsError, match=f"{name}=Decimal.*inf for no limit"):
            make(**{name: Decimal("1E+400")})


@pytest.mark.parametrize(
    "value", [np.float32(50), Fraction(50), Decimal(50)], ids=lambda value: type(value).__name__
)
def test_a_limit_may_be_any_kind_of_number(value):
    for name in ("max_credits_per_run", "max_credits_per_month", "cache_max_gb", "cache_max_age_days"):
        spf.configure(**{name: value})
        for found in (getattr(read_settings(), name), getattr(Settings(**{name: value}), name)):
            assert found == 50
            assert type(found) in {int, float}


def test_options_may_be_any_kind_of_number(tmp_path):
    lines = list("abcdef")
    for number, done in {Decimal("Infinity"): 6, Fraction(7, 2): 3}.items():
        given = dict.fromkeys(("max_credits", "patience_s", "timeout_s"), number)
        assert scripted.make(tmp_path / f"given {done}", lines, **given).stats["done"] == done
        spf.configure(**given)
        assert scripted.make(tmp_path / f"configured {done}", lines).stats["done"] == done


@pytest.mark.parametrize("value", [Decimal("nan"), Fraction(10**400), np.float64("nan")])
@pytest.mark.parametrize("name", ["cache_max_gb"])
def test_a_number_that_is_no_limit_is_a_clear_error(name, value):
    with pytest.raises(spf.SettingsError, match=f"{name}=.*allowed: a number") as caught:
        spf.configure(**{name: value})
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("line", ["ledger = 5", 'ledger = "s3:/bucket/folder"'])
def test_a_ledger_of_the_file_that_is_no_folder_is_a_clear_error(line, tmp_path, monkeypatch):
    monkeypatch.delenv("SPEECHFRAME_LEDGER", raising=False)
    (tmp_path / "speechframe.toml").write_text(line)
    with pytest.raises(spf.SettingsError, match=r"ledger=.*; allowed: a path of this machine"):
        read_spending_rules(HANDED_IN)


def test_the_month_s_count_lies_where_it_is_told_or_in_the_state_folder(tmp_path, monkeypatch):
    for name in ("SPEECHFRAME_LEDGER", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert read_spending_rules(HANDED_IN).ledger == tmp_path / "home/.local/state/speechframe/ledger"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert read_spending_rules(HANDED_IN).ledger == tmp_path / "state/speechframe/ledger"
    (tmp_path / "speechframe.toml").write_text('ledger = "~/from-file"\n')
    assert read_spending_rules(HANDED_IN).ledger == tmp_path / "home/from-file"
    monkeypatch.setenv("SPEECHFRAME_LEDGER", "~/from-environment")
    assert read_spending_rules(HANDED_IN).ledger == tmp_path / "home/from-environment"
    spf.configure(ledger=tmp_path / "configured")
    assert read_spending_rules(HANDED_IN).ledger == tmp_path / "configured"
    assert read_spending_rules(Settings(ledger=Path("~/own"))).ledger == tmp_path / "home/own"


@pytest.mark.parametrize("name", ["cache", "ledger", "service", "ca_file"])
def test_a_path_that_is_none_is_a_clear_error(name):
    for value in (True, "", "s3:/bucket/folder", 5):
        with pytest.raises(spf.SettingsError, match=f"{name}="):
            Settings(**{name: value})


MISTYPED = [
    ("allow_http", "false", "allow_http='false'; allowed: True or False"),
    ("trust_env", "no", "trust_env='no'; allowed: True or False"),
    ("base_url", b"https://me:pw@speech.example", "base_url is of type bytes; allowed: an address as text"),
    ("api_key", b"sk-pw", "api_key is of type bytes; allowed: a key as text"),
    ("profile", 5, "profile=5; allowed: a name as text"),
    ("regions", 5, "regions=5; allowed: names of regions, as a list or with commas between them"),
    ("regions", ["eu-central", 5], "regions=.*; allowed: names of regions"),
    (
        "region_urls",
        "x",
        "region_urls is of type str; allowed: region to address, such as {'us-east': 'https:",
    ),
    (
        "region_urls",
        {"us-east": 5},
        r"region_urls\[\'us-east\'\] is of type int; allowed: an address as text",
    ),
]


@pytest.mark.parametrize(("name", "value", "words"), MISTYPED)
def test_a_value_of_another_type_says_what_is_allowed(name, value, words):
    for make in (Settings, spf.configure, read_settings):
        with pytest.raises(spf.SettingsError, match=words) as caught:
            make(**{name: value})
        assert "pw" not in str(caught.value)


def test_no_field_takes_whatever_it_is_given():
    for field in fields(Settings):
        with pytest.raises(spf.SettingsError, match=field.name):
            Settings(**{field.name: object()})


@pytest.mark.parametrize("line", ['allow_http = "true"', "base_url = 5", 'region_urls = "x"'])
def test_a_mistyped_value_of_the_file_says_what_is_allowed_too(tmp_path, line):
    (tmp_path / "speechframe.toml").write_text(line)
    with pytest.raises(spf.SettingsError, match=rf"speechframe\.toml: {line.split()[0]}.*; allowed: "):
        read_settings()


def test_an_error_says_where_the_value_was_set(tmp_path, monkeypatch):
    (tmp_path / "speechframe.toml").write_text('[profiles.a]\nregions = 5\ncolour = "red"\n')
    with pytest.raises(
        spf.SettingsError, match=r"speechframe\.toml, \[profiles\.a\]: there is no setting 'colour'"
    ):
        read_settings(profile="a")
    monkeypatch.setenv("SPEECHFRAME_CACHE", "s3://bucket/calls")
    with pytest.raises(spf.SettingsError, match="SPEECHFRAME_CACHE: cache='s3://bucket/calls' is an address"):
        read_settings()
    with pytest.raises(spf.SettingsError, match=r"^cache=5; allowed: a path"):
        read_settings(cache=5)


@pytest.mark.parametrize(
    ("profiles", "words"),
    [("profiles = 5", "profiles is of type int"), ("[profiles]\nwork = 5", "profiles.work is of type int")],
)
def test_profiles_of_the_file_that_are_no_tables_are_named(tmp_path, profiles, words):
    (tmp_path / "speechframe.toml").write_text(profiles)
    for look in (read_settings, read_spending_rules):
        with pytest.raises(spf.SettingsError, match=words):
            look(**{"profile": "work"} if look is read_settings else {"service": Settings(profile="work")})


def test_the_file_spells_switches_as_toml_does(tmp_path):
    (tmp_path / "speechframe.toml").write_text(
        'allow_http = true\ntrust_env = false\nregions = "eu-central, us-east"\n'
        '[region_urls]\nus-east = "https://us.example"\n'
    )
    found = read_settings()
    assert (found.allow_http, found.trust_env) == (True, False)
    assert found.regions == ("eu-central", "us-east")
    assert found.region_urls == {"us-east": "https://us.example"}
