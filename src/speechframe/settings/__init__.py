"""Collect the settings of calls, such as address, key, folders and limits, from all places that may set them.

The places, by precedence from the highest: arguments, :func:`configure`, the environment, and
``speechframe.toml`` in the working directory. If neither a key nor an address is set, the embedded local
service is used. The environment and the file are read at each call, so a notebook can change them without a
restart.
"""

import functools
import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from speechframe.errors import SettingsError
from speechframe.settings import typed
from speechframe.settings.hidden import DUB_KEY_VARIABLE, KEY_VARIABLE, SECRET_VARIABLE, hide_keys
from speechframe.spec.limits import REGIONS

SETTINGS_FILE = "speechframe.toml"

FIELD_BY_VARIABLE: Mapping[str, str] = MappingProxyType(
    {
        KEY_VARIABLE: "api_key",
        DUB_KEY_VARIABLE: "dub_api_key",
        SECRET_VARIABLE: "webhook_secret",
        "SPEECHFRAME_BASE_URL": "base_url",
        "SPEECHFRAME_REGIONS": "regions",
        "SPEECHFRAME_PROFILE": "profile",
        "SPEECHFRAME_SERVICE": "service",
        "SPEECHFRAME_LEDGER": "ledger",
        "SPEECHFRAME_CACHE": "cache",
    }
)
"""Environment variables, each with the field of :class:`Settings` that it sets."""

GLOBAL_REGION = "global"
"""Name of the region whose address is `base_url`, unless `region_urls` has another address for it."""


_T = TypeVar("_T")


def _hide_keys_in_init(kind: type[_T]) -> type[_T]:
    """Hide the keys in the arguments of a dataclass, because tracebacks show the locals of ``__init__``."""
    original_init: Any = kind.__init__

    @functools.wraps(original_init)
    def init(self: _T, **values: Any) -> None:
        try:
            original_init(self, **hide_keys(values))
        except ValidationError as error:
            refusal = _make_settings_error(error)
        else:
            return
        # Raised out here without a context, because Dask pickles the context, which contains the key.
        raise refusal

    # If __init__ fails, error reports show the repr of the incomplete object. The repr needs this field.
    kind.region_urls = MappingProxyType({})  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[assignment, method-assign]  # the same, by name
    return kind


@_hide_keys_in_init
@dataclass(frozen=True, kw_only=True, config=typed.CHECKED_CONFIG)
class Settings:
    """Address and key of a hosted service, and files and limits on this machine.

    Parameters
    ----------
    api_key
        Key of the service. A repr never shows it.
    dub_api_key
        Key for dubbing calls. By default `api_key`.
    webhook_secret
        Secret with which the service signs the webhooks of dubbing jobs.
    base_url
        Address of the service, for example ``https://api.example.com``.
    regions
        Names of the regions to use, in order of preference (section 4.1 of the service document).
    region_urls
        Address of each region, by name.
    profile
        Name for this service and key. Run folders record it, and it selects the table
        ``[profiles.NAME]`` of ``speechframe.toml``.
    service
        Folder with the data of the embedded local service (keys, balances, audio).
    allow_http
        True allows plain http to another machine (default False). Plain http to this machine is always
        allowed.
    trust_env
        True uses the proxies of the environment, such as ``HTTPS_PROXY`` (default True).
    ca_file
        File of certificate authorities to trust instead of those of the system.
    max_credits_per_run
        Largest ``max_credits`` of a run, in credits. A run without ``max_credits`` gets this limit.
    max_credits_per_month
        Credits that a key may spend in a calendar month (UTC), over all runs of this user on this machine.
    ledger
        Folder for the attempts and costs of all runs, or an address such as ``s3://bucket/ledger`` (default:
        ``speechframe/ledger`` in the user's state folder).
    cache
        Folder of answers that all runs share. A call whose answer is in the folder costs nothing. None for no
        cache.
    cache_max_gb
        Largest size of the cache in GB (2**30 bytes), 10 by default. ``inf`` for no limit.
    cache_max_age_days
        Number of days without use after which an answer may be removed from the cache. None for no limit.
    prices, budgets
        Files of prices and of budgets (default: ``prices.toml`` and ``budgets.toml`` in the working
        directory, if these files exist).
    require_tags
        Names of tags that every run must have.
    """

    api_key: typed.Key | None = None
    dub_api_key: typed.Key | None = None
    webhook_secret: typed.Key | None = None
    base_url: typed.Address | None = None
    regions: typed.Regions = ()
    region_urls: typed.Addresses = field(default_factory=lambda: MappingProxyType({}))
    profile: typed.Name | None = None
    service: typed.LocalPath | None = None
    allow_http: typed.Switch = False
    trust_env: typed.Switch = True
    ca_file: typed.LocalPath | None = None
    max_credits_per_run: typed.Credits | None = None
    max_credits_per_month: typed.Credits | None = None
    ledger: typed.PathOrAddress | None = None
    cache: typed.LocalPath | None = None
    cache_max_gb: typed.Limit | None = 10.0
    cache_max_age_days: typed.Limit | None = None
    prices: typed.LocalPath | None = None
    budgets: typed.LocalPath | None = None
    require_tags: typed.Names = ()

    @property
    def is_local(self) -> bool:
        """True if neither a key nor an address is set, so that calls go to the embedded local service."""
        return self.api_key is None and self.base_url is None and not self.region_urls

    def addresses(self) -> dict[str, str]:
        """Return the address of each region by name, in order of preference, with `base_url` last.

        Raises
        ------
        SettingsError
            If a region has no address, an address does not begin with http or https, or
            the address is plain http to another machine without ``allow_http``.
        """
        found: dict[str, str] = {}
        for name in self.regions or (self.region_urls if self.base_url is None else ()):
            url = self.region_urls.get(name)
            if url is None and name == GLOBAL_REGION:
                url = self.base_url
            if url is None:
                raise SettingsError(
                    f"region {name!r} has no address. Give it with configure(region_urls={{{name!r}: "
                    f"'https://...'}}) or under [region_urls] in {SETTINGS_FILE}."
                )
            found[name] = url
        if self.base_url is not None and GLOBAL_REGION not in found:
            found[GLOBAL_REGION] = self.base_url
        for url in found.values():
            check_address(url, allow_http=self.allow_http)
        return {name: url.rstrip("/") for name, url in found.items()}

    def identity(self) -> str:
        """Return the name of this hosted service for run folders.

        The name is the profile, or the host name of the address, or ``unknown`` without both.
        """
        if self.profile:
            return self.profile
        url = self.base_url or next(iter(self.region_urls.values()), "")
        return urlsplit(url).hostname or "unknown"


def _make_settings_error(
    error: ValidationError, set_in: Mapping[str, str] = MappingProxyType({})
) -> SettingsError:
    hint = "Options of a run, such as max_credits, go into its call or into speechframe.configure(...)"
    return typed.make_refusal(error, "setting", [one.name for one in fields(Settings)], set_in, hint=hint)


def fingerprint_key(key: SecretStr | str) -> str:
    """Return a hash of 12 hex digits that distinguishes a key from other keys and does not reveal it.

    Examples
    --------
    >>> fingerprint_key("secret") == fingerprint_key("secret") != fingerprint_key("other")
    True
    """
    return hashlib.blake2b(
        (key.get_secret_value() if isinstance(key, SecretStr) else key).encode(),
        digest_size=6,
        person=b"speechframe-key",
    ).hexdigest()


def is_loopback(host: str | None) -> bool:
    """Return whether `host` is ``localhost`` or a loopback address, so this machine.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("example.com")
    (True, False)
    """
    if host is None:
        return False
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Versions of Python disagree whether an IPv4 loopback address inside an IPv6 address is loopback.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_address(url: str, *, allow_http: bool = False) -> None:
    """Raise SettingsError if `url` is not an http or https address, or if keys would be sent unencrypted.

    Plain http is allowed to this machine, and with `allow_http` to all machines.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it raises if the port is not a number
    except ValueError as error:
        raise SettingsError(f"base_url {url!r} is not an address: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"base_url {url!r} is not an address. Give one such as https://host or http://127.0.0.1:8099."
        )
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        raise SettingsError(
            f"{parts.hostname} is another machine and the address is plain http, so others could read "
            "the key on the way. Use https, or configure(allow_http=True) if the network is your own."
        )


def find_default_service_folder() -> Path:
    """Return the default folder for the data of the embedded local service.

    This is the folder in ``SPEECHFRAME_SERVICE``, or else ``speechframe/service`` in the user's cache folder.
    """
    named = os.environ.get("SPEECHFRAME_SERVICE")
    if named:
        return Path(named).expanduser()
    return _find_user_folder() / "service"


def find_default_cache_folder() -> Path:
    """Return the default folder of cached answers, ``speechframe/calls`` in the user's cache folder."""
    return _find_user_folder() / "calls"


def _find_user_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "speechframe"


def find_default_ledger_folder() -> Path:
    """Return the default ledger folder, ``speechframe/ledger`` in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "speechframe" / "ledger"


_configured: dict[str, Any] = {}


def configure(**values: Any) -> None:
    """Set fields of :class:`Settings` for this process. ``None`` removes a value that was set here before.

    Raises
    ------
    SettingsError
        If a name is not a setting, or a value is not allowed. No field is set then.
    """
    given = {name: value for name, value in hide_keys(values).items() if value is not None}
    checked = Settings(**given)
    _configured.update({name: getattr(checked, name) for name in given})
    for name in values.keys() - given.keys():
        _configured.pop(name, None)


def resolve_settings(**arguments: Any) -> Settings:
    """Return the settings from all places for a call to a service. Arguments have the highest precedence.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`. ``None`` means not given.

    Raises
    ------
    SettingsError
        If a key is set without an address, or an address without a key. If a region or profile is unknown, a
        value is not allowed, or a file cannot be read.
    """
    settings = read_settings(**hide_keys(arguments))
    address = settings.base_url or settings.region_urls
    if (settings.api_key or settings.dub_api_key) is not None and not address:
        raise SettingsError(
            "a key is set but no address. Set SPEECHFRAME_BASE_URL (or configure(base_url=...)) to the "
            "service's address, or unset the key to use the embedded local service."
        )
    if address and settings.api_key is None:
        raise SettingsError(
            "an address is set but no key. Set SPEECHFRAME_API_KEY (or configure(api_key=...)). "
            "If the service has only a dubbing key, use that key here too. "
            "To use the embedded local service instead, unset SPEECHFRAME_BASE_URL."
        )
    for name in settings.regions:
        if name not in REGIONS:
            raise SettingsError(f"unknown region {name!r}. Allowed: {', '.join(REGIONS)}")
    settings.addresses()
    return settings


def read_settings(**arguments: Any) -> Settings:
    """Return the settings from all places, without the checks of :func:`resolve_settings` for a service.

    Use this function for code that calls no service, such as the cache.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`. ``None`` means not given.

    Raises
    ------
    SettingsError
        If a name or profile is unknown, a value is not allowed, or a file cannot be read.
    """
    given = {name: value for name, value in hide_keys(arguments).items() if value is not None}
    return _merge_places(given, "")[0]


def resolve_for_runs(service: Any) -> tuple[Settings, Mapping[str, str]]:
    """Return the settings for runs on a service, and by name the place that set each setting, in words.

    If `service` is a :class:`Settings`, its fields with values other than the defaults have the highest
    precedence. All other fields come from :func:`configure`, the environment and the file.
    """
    given = {f.name: getattr(service, f.name) for f in fields(Settings) if isinstance(service, Settings)}
    own = {name: value for name, value in given.items() if value != getattr(Settings, name)}
    # These settings may have a profile that the file does not contain.
    return _merge_places(own, "the settings given as service=", is_any_profile=True)


def _merge_places(
    given: Mapping[str, Any], given_by: str, *, is_any_profile: bool = False
) -> tuple[Settings, dict[str, str]]:
    content, profiles = _read_file()
    profile = given.get("profile") or _configured.get("profile") or os.environ.get("SPEECHFRAME_PROFILE")
    of_profile = profiles.get(profile, {}) if isinstance(profile, str) else {}
    path = Path(SETTINGS_FILE).resolve()
    has_address = bool({**_configured, **given}.get("base_url") or os.environ.get("SPEECHFRAME_BASE_URL"))
    # If the address comes from elsewhere and no file has profiles, the profile is only a name.
    is_name = is_any_profile or (has_address and not profiles)
    if isinstance(profile, str) and profile not in profiles and not is_name:
        raise SettingsError(_describe_unknown_profile(profile, profiles, path))
    variables = [(variable, name) for variable, name in FIELD_BY_VARIABLE.items() if os.environ.get(variable)]
    places: list[tuple[str, Mapping[str, Any]]] = [
        (str(path), content),
        (f"{path}, [profiles.{profile}]", of_profile),
        *((variable, hide_keys({name: os.environ[variable]})) for variable, name in variables),
        ("configure()", _configured),
        (given_by, given),
    ]
    values: dict[str, Any] = {}
    set_in: dict[str, str] = {}
    for where, found in places:
        # If a place repeats the value of an earlier place, the earlier place counts as the place that set it.
        set_in |= {
            name: where for name, value in found.items() if name not in values or value != values[name]
        }
        values |= found
    try:
        return TypeAdapter(Settings).validate_python(values), set_in
    except ValidationError as error:
        refusal = _make_settings_error(error, set_in)
    raise refusal


def _describe_unknown_profile(profile: str, profiles: Mapping[Any, Any], path: Path) -> str:
    if profiles:
        return f"{SETTINGS_FILE} has no profile {profile!r}; it has {', '.join(map(str, profiles))}"
    state = "has no profiles" if path.exists() else "does not exist"
    return (
        f"there is no profile {profile!r}, because {path} {state}. Write a table [profiles.{profile}] into "
        "this file, or set no profile."
    )


def _hide_in_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table of the settings file with all keys hidden, also those in nested tables."""
    tables = {
        name: _hide_in_table(value)
        for name, value in table.items()
        if isinstance(value, dict) and name != "region_urls"
    }
    return hide_keys({name: value for name, value in table.items() if name not in tables}) | tables


def _read_file() -> tuple[dict[str, Any], dict[Any, dict[str, Any]]]:
    """Return the content of the settings file, and its profiles by name.

    Both are empty if the file does not exist.
    """
    path, content, problem = Path(SETTINGS_FILE), {}, ""
    try:
        with path.open("rb") as file:
            content = _hide_in_table(tomllib.load(file))
    except FileNotFoundError:
        return {}, {}
    # A ValueError means that the file is not TOML, or not in UTF-8.
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        # Raise outside the except block. Otherwise the chained error of the parser would keep the whole file,
        # with its keys, in its frames.
        raise SettingsError(f"{path.resolve()} cannot be read: {problem}")
    profiles = content.pop("profiles", {})
    tables = profiles.items() if isinstance(profiles, dict) else ()
    for name, held in (("profiles", profiles), *((f"profiles.{name}", held) for name, held in tables)):
        if not isinstance(held, dict):
            raise SettingsError(
                f"{path.resolve()}: {name} is of type {type(held).__name__}; allowed: tables [profiles.NAME]"
            )
    return content, profiles
