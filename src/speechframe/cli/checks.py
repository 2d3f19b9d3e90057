"""The checks of `doctor`. Each function checks one thing and returns its findings."""

import json
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from speechframe.cli import installed
from speechframe.engines.kinds import KINDS, SPEAKERS, Kind, points
from speechframe.engines.voice_folders import FOLDERS_VARIABLE, check_folder, voice_folders
from speechframe.errors import AudioError, EngineFault, SettingsError, SpeechframeError
from speechframe.settings import FILE_NAME, Settings, default_service_folder, fingerprint, resolve
from speechframe.writing.words import counted

OK, INFO, MISSING, LEFT_OUT, FAILED = "ok", "info", "missing", "left out", "failed"

_PROBE = "speechframe.cli.probe"
_PROBE_S = 60.0
_NEEDED = "pip install 'speechframe[local]'"
_TONE_HZ, _RATE_HZ = 440.0, 44_100


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    group, name
        The part that was checked.
    state
        ``ok``, ``info``, ``missing`` (not needed for the present settings), ``left out`` (a voice, model or
        file that cannot be used, and that costs nothing else) or ``failed``.
    words
        The finding.
    command
        The command that mends it.
    """

    group: str
    name: str
    state: str
    words: str
    command: str | None = None


def all_checks() -> Iterator[Check]:
    """Yield every check as soon as it is made."""
    yield from extras()
    found, settings = _settings()
    yield from found
    is_local = settings is None or settings.is_local
    yield from engines(needed=is_local)
    yield from catalogues()
    if settings is not None and not is_local:
        yield hosted(settings)
    yield writable("working folder", Path.cwd())
    if is_local:
        yield writable("service data", service_folder(settings))
    yield from audio()


def extras() -> Iterator[Check]:
    """Yield whether each extra of the package is installed."""
    try:
        found = installed.extras()
    except PackageNotFoundError:
        words = (
            "speechframe runs from a folder and is not installed, so its engines and extras cannot be found"
        )
        yield Check("extras", "speechframe", FAILED, words, f"{sys.executable} -m pip install -e '.[local]'")
        return
    for name, packages in found.items():
        missing = [package for package in packages if not package.is_there]
        if missing:
            words = ", ".join(map(str, missing))
            yield Check("extras", name, MISSING, words, installed.install_command(name))
        else:
            yield Check("extras", name, OK, ", ".join(map(str, packages)))


def _settings() -> tuple[list[Check], Settings | None]:
    try:
        settings = resolve()
    except SettingsError as error:
        return [Check("settings", "service", FAILED, str(error))], None
    where = "the embedded local service, because no key and no address are set"
    if not settings.is_local:
        where = f"{settings.identity()} at {', '.join(settings.addresses().values())}"
    found = [Check("settings", "service", OK, where)]
    key = settings.api_key
    shown = {
        "key": None if key is None else f"fingerprint {fingerprint(key)}",
        "regions": ", ".join(settings.regions) or None,
        "profile": settings.profile,
        "file": str(Path(FILE_NAME).resolve()) if Path(FILE_NAME).exists() else None,
        "ca_file": settings.ca_file,
    }
    found += [Check("settings", name, INFO, str(value)) for name, value in shown.items() if value is not None]
    return found, settings


def service_folder(settings: Settings | None) -> Path:
    """Return the folder of the embedded service's data."""
    return (settings.service if settings is not None else None) or default_service_folder()


def engines(*, needed: bool) -> Iterator[Check]:
    """Yield whether each engine works, tried in a process of its own, and then each part that is left out.

    Parameters
    ----------
    needed
        Whether calls go to the embedded service, so that an engine that fails matters.
    """
    trouble = FAILED if needed else MISSING
    left_out: dict[str, str] = {}
    for kind in KINDS:
        names = sorted(point.name for point in points(kind))
        if not names and kind is SPEAKERS:
            command = installed.install_command("local")
            yield Check(_group(kind), "none", trouble, "no speech engine is installed", command)
        for name in names:
            result = run_probe(kind.name, name)
            if result.get("problem"):
                state = MISSING if _is_optional(result.get("command")) else trouble
                yield Check(
                    _group(kind), name, state, result["problem"], installed.exact(result.get("command"))
                )
            else:
                yield Check(_group(kind), name, OK, _works(kind, result))
            # Two engines may search the same folder.
            left_out |= {words: name for words in result.get("left_out", ()) if words not in left_out}
    for words, name in left_out.items():
        yield Check("left out", name, LEFT_OUT, words)


def _group(kind: Kind) -> str:
    # Speech engines have the plain name, because everything needs them.
    return "engines" if kind is SPEAKERS else f"{kind.name}s"


def _is_optional(command: str | None) -> bool:
    """Return whether a command installs an optional part, one that the service itself does not need."""
    if command is None or not command.startswith(("pip install ", "apt install ")):
        return False
    return "--upgrade" not in command and command != _NEEDED


def _works(kind: Kind, result: dict[str, Any]) -> str:
    has = ""
    if kind is SPEAKERS:
        has = f": {counted(result['voices'], 'voice')}, {counted(result['locales'], 'locale')}"
    elif result["pairs"]:
        has = f": {counted(result['pairs'], 'pair')}"
    return f"{result['version']}{has}" + (f"; {result['tried']}" if "tried" in result else "")


def catalogues() -> Iterator[Check]:
    """Yield the number of voices of each model in the embedded service, and each voice left out."""
    for folder in voice_folders():
        try:
            check_folder(folder)
        except EngineFault as error:
            # The service does not start, because the folder of a setting must exist.
            yield Check("voices", "folder", FAILED, f"{error}. Correct {FOLDERS_VARIABLE}")
    result = run_probe()
    if "problem" in result:
        yield Check("voices", "catalogues", FAILED, result["problem"])
        return
    for words in result.pop("left_out"):
        yield Check("voices", "duplicate", LEFT_OUT, words)
    for model, counts in result.items():
        words = f"{counted(counts['voices'], 'voice')}, {counted(counts['locales'], 'locale')}"
        yield Check("voices", model, INFO, words)


def run_probe(*names: str) -> dict[str, Any]:
    """Return the result of a probe in a process of its own, or its ``problem``."""
    try:
        ended = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", _PROBE, *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"did not answer within {_PROBE_S:.0f} s"}
    try:
        # A native library may print, too, but the last line is ours.
        result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return {"problem": f"{_end_of(ended.returncode)}: {lines[-1] if lines else 'it wrote no error'}"}
    return result


def _end_of(code: int) -> str:
    return f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def hosted(settings: Settings) -> Check:
    """Return whether the service of the settings accepts the key. Listing its voices costs nothing."""
    from speechframe import api

    started = time.perf_counter()
    try:
        found = api.voices(service=settings)
    except SpeechframeError as error:
        return Check("service", settings.identity(), FAILED, str(error))
    took_ms = 1000 * (time.perf_counter() - started)
    return Check(
        "service", settings.identity(), OK, f"{counted(len(found), 'voice')}, answered in {took_ms:.0f} ms"
    )


def writable(name: str, folder: Path) -> Check:
    """Return whether files can be made in `folder`, or in the nearest folder above it. No file stays."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        return Check("folders", name, FAILED, f"{folder} cannot be written: {error.strerror}")
    return Check("folders", name, OK, f"{folder} ({free / 2**30:,.0f} GB free)")


def audio() -> Iterator[Check]:
    """Yield whether every audio format can be written and read back."""
    import numpy as np
    import soundfile

    from speechframe.audio import codec
    from speechframe.spec.speech import ChannelType, Format

    tone = np.sin(np.arange(_RATE_HZ // 10) * (2 * np.pi * _TONE_HZ / _RATE_HZ)).astype(np.float32)
    works, broken = [], []
    for kind in Format:
        _, rate_hz = codec.forced_shape(kind, ChannelType.MONO, _RATE_HZ)
        try:
            data = codec.encode(tone, rate_hz, format=kind, output_rate_hz=rate_hz)
            codec.decode(data, format=kind, sample_rate_hz=rate_hz)
        except AudioError as error:
            broken.append(f"{kind.value}: {error}")
        else:
            works.append(kind.value)
    library = f"soundfile {soundfile.__version__}, {soundfile.__libsndfile_version__}"
    yield Check("audio", "formats", OK if works else FAILED, f"{', '.join(works)} ({library})")
    if broken:
        yield Check("audio", "broken", FAILED, "; ".join(broken))


def about() -> dict[str, str]:
    """Return the versions of the package and of Python, and the platform."""
    from speechframe._version import __version__

    return {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
