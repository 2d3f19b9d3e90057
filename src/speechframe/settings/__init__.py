"""Settings of calls: address, key, folders and limits, and the places they come from.

Precedence, highest first: arguments, :func:`configure`, the environment, ``speechframe.toml`` in the working
directory. If neither a key nor an address is set, the embedded local service is used. The environment and the
file are read at each call, so a notebook can change them without a restart.
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
from speechframe.settings.hidden import DUB_KEY_VARIABLE, KEY_VARIABLE, SECRET_VARIABLE, hide
from speechframe.spec.limits import REGIONS

FILE_NAME = "speechframe.toml"

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
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


_T = TypeVar("_T")


def _hide_keys_in_init(kind: type[_T]) -> type[_T]:
    """Hide keys in the arguments of a dataclass, because tracebacks show the locals of ``__init__``."""
    original_init: Any = kind.__init__

    @functools.wraps(original_init)
    def init(self: _T, **values: Any) -> None:
        try:
            original_init(self, **hide(values))
        except ValidationError as error:
            raise _settings_error(error) from None

    # If __init__ fails, error reports show the repr of the half-made object, which needs this field.
    kind.region_urls = MappingProxyType({})  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[assignment, method-assign]  # the same, by name
    return kind


@_hide_keys_in_init
@dataclass(frozen=True, kw_only=True, config=typed.CONFIG)
class Settings:
    """Address and key of a hosted service, and files and limits on this machine.

    Parameters
    ----------
    api_key
        Key of the service. A repr never shows it.
    dub_api_key
        Key for dubbing calls, if they need a key of their own. Default: `api_key`.
    webhook_secret
        Secret that signs the webhooks of dubbing jobs.
    base_url
        Address of the service, for example ``https://api.example.com``.
    regions
        Names of the regions to use, in order of preference (section 4.1).
    region_urls
        Address of each named region.
    profile
        Name for this service and key. Run folders record it, and it selects the table
        ``[profiles.NAME]`` of ``speechframe.toml``.
    service
        Folder with the data of the embedded local service (keys, balances, audio).
    allow_http
        Allow plain http to another machine (default False). Loopback is always allowed.
    trust_env
        Use the proxies of the environment, such as ``HTTPS_PROXY`` (default True).
    ca_file
        File of certificate authorities to trust instead of those of the system.
    max_credits_per_run
        Largest ``max_credits`` of a run, in credits. A run without ``max_credits`` gets this limit.
    max_credits_per_month
        Credits that a key may spend in a calendar month (UTC), over all runs of this user on this machine.
    ledger
        Folder for the attempts of every run, or an address such as ``s3://bucket/ledger`` (default:
        ``speechframe/ledger`` in the user's state folder).
    cache
        Folder of answers that all runs share. A call whose answer is in the folder costs nothing. None for no
        cache.
    cache_max_gb
        Size of the cache in GB (2**30 bytes), 10 by default. ``inf`` for no limit.
    cache_max_age_days
        Days after its last use at which an answer may leave the cache. None for no limit.
    prices, budgets
        Files of prices and of budgets (default: ``prices.toml`` and ``budgets.toml`` in the working
        directory, if they exist).
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
        """Whether neither a key nor an address is set, so that calls go to the embedded local service."""
        return self.api_key is None and self.base_url is None and not self.region_urls

    def addresses(self) -> dict[str, str]:
        """Return region name to address, in order of preference; the global address comes last.

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
                    f"'https://...'}}) or under [region_urls] in {FILE_NAME}."
                )
            found[name] = url
        if self.base_url is not None and GLOBAL_REGION not in found:
            found[GLOBAL_REGION] = self.base_url
        for url in found.values():
            check_address(url, allow_http=self.allow_http)
        return {name: url.rstrip("/") for name, url in found.items()}

    def identity(self) -> str:
        """Return the name of this hosted service in run folders: the profile, or the host name."""
        if self.profile:
            return self.profile
        url = self.base_url or next(iter(self.region_urls.values()), "")
        return urlsplit(url).hostname or "unknown"


def _settings_error(
    error: ValidationError, set_in: Mapping[str, str] = MappingProxyType({})
) -> SettingsError:
    hint = "Options of a run, such as max_credits, go into its call or into speechframe.configure(...)"
    return typed.refused(error, "setting", [one.name for one in fields(Settings)], set_in, hint=hint)


def fingerprint(key: SecretStr | str) -> str:
    """Return 12 hex digits that distinguish keys and do not reveal them.

    Examples
    --------
    >>> fingerprint("secret") == fingerprint("secret") != fingerprint("other")
    True
    """
    return hashlib.blake2b(
        (key.get_secret_value() if isinstance(key, SecretStr) else key).encode(),
        digest_size=6,
        person=b"speechframe-key",
    ).hexdigest()


def is_loopback(host: str | None) -> bool:
    """Whether `host` is this machine.

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
    """Raise SettingsError if a key must not be sent to `url`."""
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


def default_service_folder() -> Path:
    """Return the default folder of the embedded service's data.

    ``SPEECHFRAME_SERVICE``, else ``speechframe/service`` in the user's cache folder.
    """
    named = os.environ.get("SPEECHFRAME_SERVICE")
    if named:
        return Path(named).expanduser()
    return _user_folder() / "service"


def default_cache_folder() -> Path:
    """Return the default folder of the cache, ``speechframe/calls`` in the user's cache folder."""
    return _user_folder() / "calls"


def _user_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "speechframe"


def default_ledger_folder() -> Path:
    """Return the default ledger folder, ``speechframe/ledger`` in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "speechframe" / "ledger"


_configured: dict[str, Any] = {}


def configure(**values: Any) -> None:
    """Set fields of :class:`Settings` for this process. ``None`` removes a field's value.

    Raises
    ------
    SettingsError
        If a name is not a setting, or a value is not allowed. Nothing is set then.
    """
    given = {name: value for name, value in hide(values).items() if value is not None}
    checked = Settings(**given)
    _configured.update({name: getattr(checked, name) for name in given})
    for name in values.keys() - given.keys():
        _configured.pop(name, None)


def resolve(**arguments: Any) -> Settings:
    """Return the settings in force. Arguments come first.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`; ``None`` means not given.

    Raises
    ------
    SettingsError
        If a key has no address or an address no key, if a region or profile is unknown, or if a file cannot
        be read.
    """
    settings = read(**hide(arguments))
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


def read(**arguments: Any) -> Settings:
    """Return the settings in force, without the check that they name a service.

    For parts that call no service, such as the cache.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`; ``None`` means not given.

    Raises
    ------
    SettingsError
        If a name or profile is unknown, a value is not allowed, or a file cannot be read.
    """
    given = {name: value for name, value in hide(arguments).items() if value is not None}
    return _merge(given, "")[0]


def for_runs_on(service: Any) -> tuple[Settings, Mapping[str, str]]:
    """Return the settings for runs on a service, and for each name the place that set it, in words.

    Fields with other than default values in `service` come first. The other fields come from
    :func:`configure`, the environment and the file.
    """
    given = {f.name: getattr(service, f.name) for f in fields(Settings) if isinstance(service, Settings)}
    own = {name: value for name, value in given.items() if value != getattr(Settings, name)}
    # The file need not contain the profile of these settings.
    return _merge(own, "the settings given as service=", is_any_profile=True)


def _merge(
    given: Mapping[str, Any], given_by: str, *, is_any_profile: bool = False
) -> tuple[Settings, dict[str, str]]:
    content, profiles = _read_file()
    profile = given.get("profile") or _configured.get("profile") or os.environ.get("SPEECHFRAME_PROFILE")
    of_profile = profiles.get(profile, {}) if isinstance(profile, str) else {}
    # If the file has no profiles, a profile is only the name of the service in run folders.
    if isinstance(profile, str) and profiles and profile not in profiles and not is_any_profile:
        raise SettingsError(f"{FILE_NAME} has no profile {profile!r}; it has {', '.join(profiles)}")
    path = Path(FILE_NAME).resolve()
    variables = [(variable, name) for variable, name in ENVIRONMENT.items() if os.environ.get(variable)]
    places: list[tuple[str, Mapping[str, Any]]] = [
        (str(path), content),
        (f"{path}, [profiles.{profile}]", of_profile),
        *((variable, hide({name: os.environ[variable]})) for variable, name in variables),
        ("configure()", _configured),
        (given_by, given),
    ]
    values: dict[str, Any] = {}
    set_in: dict[str, str] = {}
    for where, found in places:
        # A setting that only repeats an earlier place keeps the name of that place.
        set_in |= {
            name: where for name, value in found.items() if name not in values or value != values[name]
        }
        values |= found
    try:
        return TypeAdapter(Settings).validate_python(values), set_in
    except ValidationError as error:
        raise _settings_error(error, set_in) from None


def _hide_in_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table of the file with all keys hidden, also in nested tables."""
    tables = {
        name: _hide_in_table(value)
        for name, value in table.items()
        if isinstance(value, dict) and name != "region_urls"
    }
    return hide({name: value for name, value in table.items() if name not in tables}) | tables


def _read_file() -> tuple[dict[str, Any], dict[Any, dict[str, Any]]]:
    """Return the content of the file and its profiles by name. Both are empty if the file does not exist."""
    path, content, problem = Path(FILE_NAME), {}, ""
    try:
        with path.open("rb") as file:
            content = _hide_in_table(tomllib.load(file))
    except FileNotFoundError:
        return {}, {}
    # ValueError: the file is not TOML, or not UTF-8.
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        # Raise outside of the except block. A chained parser error would hold the whole file in its frames.
        raise SettingsError(f"{path.resolve()} cannot be read: {problem}")
    profiles = content.pop("profiles", {})
    tables = profiles.items() if isinstance(profiles, dict) else ()
    for name, held in (("profiles", profiles), *((f"profiles.{name}", held) for name, held in tables)):
        if not isinstance(held, dict):
            raise SettingsError(
                f"{path.resolve()}: {name} is of type {type(held).__name__}; allowed: tables [profiles.NAME]"
            )
    return content, profiles
