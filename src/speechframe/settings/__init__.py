"""Where calls go and with which key: arguments, `configure`, environment, `speechframe.toml`.

Precedence, in one sentence: an argument beats :func:`configure`, which beats
the environment, which beats ``speechframe.toml`` in the working directory;
with nothing set the embedded local service is used. The environment and the
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
"""Environment variable to the field of :class:`Settings` it sets."""

GLOBAL_REGION = "global"


_T = TypeVar("_T")


def _hides_keys(kind: type[_T]) -> type[_T]:
    """Wrap the ``__init__`` that a dataclass is given: its locals are what was passed, keys as plain text."""
    made: Any = kind.__init__

    @functools.wraps(made)
    def init(self: _T, **values: Any) -> None:
        try:
            made(self, **hide(values))
        except ValidationError as error:
            raise _refused(error) from None

    # What a repr shows of an object whose making failed: reports of errors have it.
    kind.region_urls = MappingProxyType({})  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[assignment, method-assign]  # the same, by name
    return kind


@_hides_keys
@dataclass(frozen=True, kw_only=True, config=typed.CONFIG)
class Settings:
    """Where a hosted service is and how to reach it, and what is kept on this machine.

    Parameters
    ----------
    api_key
        The key of the service; never shown in a repr.
    dub_api_key
        The key of its dubbing calls, where they have one of their own; else they are made with `api_key`.
    webhook_secret
        Signs the webhooks of dubbing jobs.
    base_url
        The service's address, for example ``https://api.example.com``.
    regions
        Names of the regions to use, in order of preference (section 4.1).
    region_urls
        Address of each named region.
    profile
        A name for this service and key: it stands for the service in run
        folders and names a ``[profiles.NAME]`` table of ``speechframe.toml``.
    service
        Folder of the embedded local service's data (keys, balances, audio).
    allow_http
        Allow plain http to another machine. Loopback is always allowed.
    trust_env
        Use the proxies of the environment (``HTTPS_PROXY`` and so on).
    ca_file
        File of certificate authorities to trust, instead of the system's.
    max_credits_per_run
        A house rule: no run may be given a larger ``max_credits``, and one without gets this one.
    max_credits_per_month
        Credits a key may spend in a calendar month (UTC), over all runs of this user on this machine.
    ledger
        Folder into which every run puts its attempts, or an address such as ``s3://bucket/ledger`` (default:
        ``speechframe/ledger`` in the user's state folder).
    cache
        Folder of answers that all runs share: a call that is in it costs nothing. None for none.
    cache_max_gb
        Size of that folder in GB (2**30 bytes); ``inf`` for no limit.
    cache_max_age_days
        Days after its last use an answer may leave that folder. None for no limit.
    prices, budgets
        Files of prices and of budgets (default: ``prices.toml`` and ``budgets.toml`` in the working
        directory, where there are such).
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
        """Whether nothing is configured, so that the embedded local service is meant."""
        return self.api_key is None and self.base_url is None and not self.region_urls

    def addresses(self) -> dict[str, str]:
        """Return region name to address, in order of preference; the global address comes last.

        Raises
        ------
        SettingsError
            When a region has no address, an address is no http(s) address, or
            it is plain http to another machine without ``allow_http``.
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
        """Return what names this hosted service in run folders: the profile, or the host's name."""
        if self.profile:
            return self.profile
        url = self.base_url or next(iter(self.region_urls.values()), "")
        return urlsplit(url).hostname or "unknown"


def _refused(error: ValidationError, told_by: Mapping[str, str] = MappingProxyType({})) -> SettingsError:
    hint = "Options of a run, such as max_credits, go into its call or into speechframe.configure(...)"
    return typed.refused(error, "setting", [one.name for one in fields(Settings)], told_by, hint=hint)


def fingerprint(key: SecretStr | str) -> str:
    """Return 12 hex digits that tell keys apart without giving them away.

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
    # Whether an IPv4 address within IPv6 counts depends on the version of Python.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def check_address(url: str, *, allow_http: bool = False) -> None:
    """Raise SettingsError unless `url` is an address a key may be sent to."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it raises for a port that is no number
    except ValueError as error:
        raise SettingsError(f"base_url {url!r} is not an address: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"base_url {url!r} is not an address; it looks like https://host or http://127.0.0.1:8099"
        )
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        raise SettingsError(
            f"{parts.hostname} is another machine and the address is plain http: the key could be read on "
            "the way. Use https, or configure(allow_http=True) if the network is your own."
        )


def default_service_folder() -> Path:
    """Return the folder of the embedded service's data when nothing else is said.

    ``SPEECHFRAME_SERVICE``, else ``speechframe/service`` in the user's cache folder.
    """
    named = os.environ.get("SPEECHFRAME_SERVICE")
    if named:
        return Path(named).expanduser()
    return _user_folder() / "service"


def default_cache_folder() -> Path:
    """Return the folder of a cache that is asked for without being named: ``speechframe/calls`` there."""
    return _user_folder() / "calls"


def _user_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "speechframe"


def default_ledger_folder() -> Path:
    """Return the ledger folder unless another is set: ``speechframe/ledger`` in the user's state folder."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "speechframe" / "ledger"


_configured: dict[str, Any] = {}


def configure(**values: Any) -> None:
    """Set fields of :class:`Settings` for this process; ``None`` takes a field back.

    Raises
    ------
    SettingsError
        For a name that is no setting, or a value that is not allowed; then nothing is set.
    """
    given = {name: value for name, value in hide(values).items() if value is not None}
    checked = Settings(**given)
    _configured.update({name: getattr(checked, name) for name in given})
    for name in values.keys() - given.keys():
        _configured.pop(name, None)


def resolve(**arguments: Any) -> Settings:
    """Return the settings in force, arguments first.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`; ``None`` means not given.

    Raises
    ------
    SettingsError
        For a key without an address, an address without a key, an unknown
        region or profile, or a file that cannot be read.
    """
    settings = read(**hide(arguments))
    address = settings.base_url or settings.region_urls
    if (settings.api_key or settings.dub_api_key) is not None and not address:
        raise SettingsError(
            "a key is set but no address: set SPEECHFRAME_BASE_URL (or configure(base_url=...)) to the "
            "service's address. Without a key and an address the embedded local service is used."
        )
    if address and settings.api_key is None:
        raise SettingsError(
            "an address is set but no key: set SPEECHFRAME_API_KEY (or configure(api_key=...)), where there "
            "is no other to the dubbing key. "
            "To use the embedded local service instead, unset SPEECHFRAME_BASE_URL."
        )
    for name in settings.regions:
        if name not in REGIONS:
            raise SettingsError(f"unknown region {name!r}; the document lists {', '.join(REGIONS)}")
    settings.addresses()
    return settings


def read(**arguments: Any) -> Settings:
    """Return the settings in force as :func:`resolve` does, whether or not they name a service.

    For what needs none, such as the cache.

    Parameters
    ----------
    **arguments
        Fields of :class:`Settings`; ``None`` means not given.

    Raises
    ------
    SettingsError
        For an unknown name or profile, a value that is not allowed, or a file that cannot be read.
    """
    given = {name: value for name, value in hide(arguments).items() if value is not None}
    return _merged(given, "")[0]


def for_runs_on(service: Any) -> tuple[Settings, Mapping[str, str]]:
    """Return the settings for runs on a service, and by name where each was set, in words.

    What Settings that are handed in do not say comes from :func:`configure`, the environment and the file;
    what is the default may not have been said at all.
    """
    said = {f.name: getattr(service, f.name) for f in fields(Settings) if isinstance(service, Settings)}
    own = {name: value for name, value in said.items() if value != getattr(Settings, name)}
    # Its profile is a name that the file need not know.
    return _merged(own, "the settings given as service=", is_any_profile=True)


def _merged(
    given: Mapping[str, Any], given_by: str, *, is_any_profile: bool = False
) -> tuple[Settings, dict[str, str]]:
    content, profiles = _read_file()
    profile = given.get("profile") or _configured.get("profile") or os.environ.get("SPEECHFRAME_PROFILE")
    of_profile = profiles.get(profile, {}) if isinstance(profile, str) else {}
    # A profile without a file is a name only: it stands for the service in run folders.
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
    told_by: dict[str, str] = {}
    for where, said in places:
        # Settings that are handed in may have come out of the other places.
        told_by |= {
            name: where for name, value in said.items() if name not in values or value != values[name]
        }
        values |= said
    try:
        return TypeAdapter(Settings).validate_python(values), told_by
    except ValidationError as error:
        raise _refused(error, told_by) from None


def _hidden(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table of the file, and the tables in it, with its keys hidden."""
    tables = {
        name: _hidden(value)
        for name, value in table.items()
        if isinstance(value, dict) and name != "region_urls"
    }
    return hide({name: value for name, value in table.items() if name not in tables}) | tables


def _read_file() -> tuple[dict[str, Any], dict[Any, dict[str, Any]]]:
    """Return what the file says for all, and its profiles by name; nothing where there is no file."""
    path, content, problem = Path(FILE_NAME), {}, ""
    try:
        with path.open("rb") as file:
            content = _hidden(tomllib.load(file))
    except FileNotFoundError:
        return {}, {}
    # ValueError: no TOML, or no UTF-8.
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        # Raised here: an error chained to that of the parser would carry the whole file in its frames.
        raise SettingsError(f"{path.resolve()} cannot be read: {problem}")
    profiles = content.pop("profiles", {})
    tables = profiles.items() if isinstance(profiles, dict) else ()
    for name, held in (("profiles", profiles), *((f"profiles.{name}", held) for name, held in tables)):
        if not isinstance(held, dict):
            raise SettingsError(
                f"{path.resolve()}: {name} is of type {type(held).__name__}; allowed: tables [profiles.NAME]"
            )
    return content, profiles
