"""Where calls go: precedence, completeness, and keys that never show."""

import pytest
from pydantic import SecretStr

import speechframe as spf
from speechframe.settings import ENVIRONMENT, Settings, check_address, fingerprint, resolve

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_nothing_set_is_the_local_service():
    assert resolve().is_local


def test_argument_beats_configure_beats_environment_beats_file(tmp_path, monkeypatch):
    (tmp_path / "speechframe.toml").write_text('api_key = "file"\nbase_url = "https://file.example"\n')
    assert resolve().base_url == "https://file.example"
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", "https://environment.example")
    assert resolve().base_url == "https://environment.example"
    spf.configure(base_url="https://configured.example")
    assert resolve().base_url == "https://configured.example"
    assert resolve(base_url="https://argument.example").base_url == "https://argument.example"
    spf.configure(base_url=None)
    assert resolve().base_url == "https://environment.example"


def test_environment_is_read_at_call_time(monkeypatch):
    assert resolve().is_local
    monkeypatch.setenv("SPEECHFRAME_API_KEY", KEY)
    monkeypatch.setenv("SPEECHFRAME_BASE_URL", "https://speech.example")
    assert resolve().api_key == SecretStr(KEY)


def test_every_variable_sets_its_field(monkeypatch, tmp_path):
    values = {
        "SPEECHFRAME_API_KEY": KEY,
        "SPEECHFRAME_BASE_URL": "https://speech.example",
        "SPEECHFRAME_REGIONS": "global",
        "SPEECHFRAME_PROFILE": "team",
        "SPEECHFRAME_SERVICE": str(tmp_path),
    }
    assert set(values) == set(ENVIRONMENT)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    found = resolve()
    assert (found.regions, found.profile, found.service) == (("global",), "team", tmp_path)
    assert found.identity() == "team"


def test_profiles_of_the_file(tmp_path):
    (tmp_path / "speechframe.toml").write_text(
        'api_key = "common"\n[profiles.work]\nbase_url = "https://work.example"\n'
        '[profiles.home]\nbase_url = "https://home.example"\napi_key = "own"\n'
    )
    assert resolve(profile="work").base_url == "https://work.example"
    assert resolve(profile="home").api_key == SecretStr("own")
    with pytest.raises(spf.SettingsError, match="work, home"):
        resolve(profile="school")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"api_key": KEY}, "SPEECHFRAME_BASE_URL"),
        ({"base_url": "https://speech.example"}, "SPEECHFRAME_API_KEY"),
        ({"api_key": KEY, "base_url": "speech.example"}, "is not an address"),
        ({"api_key": KEY, "base_url": "ftp://speech.example"}, "is not an address"),
        ({"api_key": KEY, "base_url": "https://speech.example:port"}, "is not an address"),
        ({"api_key": KEY, "base_url": "https://me:pw@speech.example"}, "user name or password"),
        ({"api_key": KEY, "base_url": "http://speech.example"}, "plain http"),
        ({"api_key": KEY, "base_url": "https://a.example", "regions": ["mars"]}, "us-east"),
        ({"api_key": KEY, "base_url": "https://a.example", "regions": ["us-east"]}, "has no address"),
        ({"api_key": " ", "base_url": "https://a.example"}, "the api key is empty"),
        ({"colour": "red"}, "no setting 'colour'"),
    ],
)
def test_what_is_incomplete_says_what_to_set(given, words):
    with pytest.raises(spf.SettingsError, match=words) as caught:
        resolve(**given)
    assert KEY not in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "speechframe.toml").write_text("api_key = ")
    with pytest.raises(spf.SettingsError, match=r"speechframe\.toml cannot be read"):
        resolve()


def test_configure_takes_settings_and_run_options_and_nothing_else():
    spf.configure(max_concurrency=3, profile="team")
    assert resolve().profile == "team"
    with pytest.raises(spf.SettingsError):
        spf.configure(max_concurrency=0)
    with pytest.raises(spf.SettingsError, match="speed"):
        spf.configure(speed=3)


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.9.10"])
def test_plain_http_to_this_machine(host):
    check_address(f"http://{host}:8099")


def test_the_key_shows_nowhere():
    found = resolve(api_key=KEY, base_url="https://speech.example")
    assert KEY not in repr(found) + str(found)
    assert len(fingerprint(KEY)) == 12
    assert KEY not in fingerprint(KEY)
