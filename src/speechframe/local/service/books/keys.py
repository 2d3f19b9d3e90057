"""Keys and tokens of callers. They are found by their hash. The secrets are never stored or logged."""

import hashlib
import hmac
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from speechframe.errors import SettingsError
from speechframe.local.service.books.database import now
from speechframe.local.service.config import KeySpec, parse_key
from speechframe.settings import fingerprint_key
from speechframe.settings.hidden import Hidden
from speechframe.spec import billing, chosen

KEY_FILE = "key"
"""Name of the file in the data folder that contains a generated key."""
# Name of the row in the table `facts`.
_SALT_NAME = "salt"


@dataclass(frozen=True)
class Key:
    """An accepted key without its secret.

    Parameters
    ----------
    key_hash
        Identifies the key in every table.
    fingerprint
        Identifies the key in logs. The caller's run folders contain the same fingerprint.
    quota_millis
        Thousandths of a character that the key may use in a billing cycle.
    concurrency
        The key's own limit of requests in flight. None selects the defaults.
    """

    key_hash: bytes
    fingerprint: str
    quota_millis: int
    concurrency: int | None


class KeyRing:
    """The keys that this process accepts. The methods find the key for a secret that a caller sent.

    Parameters
    ----------
    salt
        Random bytes of the data folder. They make the hashes of equal keys differ between folders.
    specs
        The accepted keys. The database keeps the balances of other keys.
    balance
        Name of the balance that the ring's keys use. The hash of a key depends on this name, so one key has a
        separate balance in each ring.
    """

    def __init__(self, salt: bytes, specs: Iterable[KeySpec], balance: str = "") -> None:
        self._salt = salt
        self._balance = balance.encode()
        self._keys = tuple(self._make_key(spec) for spec in specs)

    def _make_key(self, spec: KeySpec) -> Key:
        return Key(
            self.hash_secret(Hidden(spec.key.get_secret_value())),
            fingerprint_key(spec.key),
            spec.quota_characters * billing.MILLICREDITS_PER_CREDIT,
            spec.concurrency,
        )

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def hash_secret(self, secret: str) -> bytes:
        """Return the salted hash of a caller's secret, as the database stores it."""
        return hashlib.blake2b(
            secret.encode(errors="surrogateescape"), key=self._salt, person=self._balance, digest_size=32
        ).digest()

    def find(self, secret: str) -> Key | None:
        """Return the accepted key for a caller's secret, or None.

        The time does not depend on the number of correct characters.
        """
        return self.find_by_hash(self.hash_secret(secret))

    def find_by_hash(self, key_hash: bytes) -> Key | None:
        """Return the accepted key with this hash, or None."""
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.key_hash, key_hash):
                found = key
        return found


def load_salt(connection: sqlite3.Connection) -> bytes:
    """Return the data folder's salt. The first call creates it.

    Raises
    ------
    SettingsError
        The salt is damaged. Without the salt, the balances of keys cannot be found.
    """
    connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (_SALT_NAME, secrets.token_bytes(32)))
    (salt,) = connection.execute("SELECT value FROM facts WHERE name = ?", (_SALT_NAME,)).fetchone()
    if not isinstance(salt, bytes):
        raise SettingsError(
            "the salt in the database of the data folder is damaged, so no key finds its balance. "
            "Restore the database from a backup, or use another folder (--data, SPEECHFRAME_SERVICE)"
        )
    return salt


def record_keys(connection: sqlite3.Connection, ring: KeyRing) -> None:
    """Store the quota of each accepted key. The used amounts do not change."""
    connection.executemany(
        "INSERT INTO keys VALUES (?, ?, ?) ON CONFLICT (key_hash) "
        "DO UPDATE SET quota_millis = excluded.quota_millis, seen_at = excluded.seen_at",
        [(key.key_hash, key.quota_millis, now()) for key in ring],
    )


def make_token(connection: sqlite3.Connection, ring: KeyRing, key: Key) -> tuple[Hidden, float]:
    """Return a new token and the Unix time in seconds at which it expires."""
    token, expires_at = Hidden(secrets.token_urlsafe(32)), now() + chosen.TOKEN_LIFETIME_SECONDS
    connection.execute("DELETE FROM tokens WHERE expires_at <= ?", (now(),))
    connection.execute(
        "INSERT INTO tokens VALUES (?, ?, ?)", (ring.hash_secret(token), key.key_hash, expires_at)
    )
    return token, expires_at


def find_token(connection: sqlite3.Connection, ring: KeyRing, token: str) -> Key | None:
    """Return the key of a token. Return None if the token is unknown or expired, or the key not accepted."""
    row = connection.execute(
        "SELECT key_hash FROM tokens WHERE token_hash = ? AND expires_at > ?",
        (ring.hash_secret(token), now()),
    ).fetchone()
    return ring.find_by_hash(bytes(row[0])) if row else None


def load_own_key(data: Path) -> KeySpec:
    """Return the key in the file ``data/key``. Create a missing file with a new key and mode 600.

    Raises
    ------
    SettingsError
        The file does not contain a key, or cannot be read or created.
    """
    path = data / KEY_FILE
    try:
        if not path.exists():
            _make_key_file(path)
        return parse_key(Hidden(path.read_text(encoding="utf-8", errors="replace")))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read or made: {error.strerror or error}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}. Remove the file and a new key is made.") from None


def _make_key_file(path: Path) -> None:
    # Write the whole file under another name, then link it. If two services start at the same time, both
    # then read the same complete key.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    part.touch(mode=0o600, exist_ok=False)
    try:
        part.write_text(f"local-{secrets.token_urlsafe(24)}\n", encoding="utf-8")
        path.hardlink_to(part)
    except FileExistsError:
        pass
    finally:
        part.unlink()
