"""The checks of the command `doctor`. Each function checks one part and returns or yields the results."""

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
from speechframe.engines.kinds import KINDS, SPEAKERS, EngineKind, list_entry_points
from speechframe.engines.voice_folders import FOLDERS_VARIABLE, check_folder, list_voice_folders
from speechframe.errors import AudioError, EngineFault, SettingsError, SpeechframeError
from speechframe.settings import (
    SETTINGS_FILE,
    Settings,
    find_default_service_folder,
    fingerprint_key,
    resolve_settings,
)
from speechframe.writing.words import format_count

# The state of a part that is absent, but not needed, is shown as "missing".
OK, INFO, NOT_NEEDED, LEFT_OUT, FAILED = "ok", "info", "missing", "left out", "failed"

_PROBE_MODULE = "speechframe.cli.probe"
"""Module that tries one engine, or counts voices, in a process of its own."""
_PROBE_TIMEOUT_S = 60.0
"""Time limit in seconds for one probe. Loading a large model may take many seconds."""
_REQUIRED_INSTALL = "pip install 'speechframe[local]'"
"""Command that installs the parts that the local service itself needs.

A part with another installation command is optional.
"""
_TONE_HZ, _RATE_HZ = 440.0, 44_100
"""Pitch and sample rate of the tone that is written in every audio format."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    group, name
        The heading under which the check is printed, and the part that was checked.
    state
        ``ok``, ``info``, ``missing`` (not needed for the present settings), ``left out`` (a voice, model or
        file that cannot be used, while everything else works) or ``failed``.
    words
        The finding, as text for people.
    command
        Shell command that installs or repairs the part. None if there is no such command.
    """

    group: str
    name: str
    state: str
    words: str
    command: str | None = None


def run_checks() -> Iterator[Check]:
    """Run all checks, and yield each result as soon as it is known."""
    yield from check_extras()
    found, settings = _check_settings()
    yield from found
    is_local = settings is None or settings.is_local
    yield from check_engines(needed=is_local)
    yield from check_voices()
    if settings is not None and not is_local:
        yield check_hosted_service(settings)
    yield check_writable("working folder", Path.cwd())
    if is_local:
        yield check_writable("service data", get_service_folder(settings))
    yield from check_audio()


def check_extras() -> Iterator[Check]:
    """Yield a result for each extra of the package. If the package is not installed, yield one failure."""
    try:
        found = installed.list_extras()
    except PackageNotFoundError:
        fault = (
            "speechframe runs from a folder and is not installed, so its engines and extras cannot be found"
        )
        yield Check("extras", "speechframe", FAILED, fault, f"{sys.executable} -m pip install -e '.[local]'")
        return
    for name, packages in found.items():
        missing = [package for package in packages if not package.is_usable]
        if missing:
            finding = ", ".join(map(str, missing))
            yield Check("extras", name, NOT_NEEDED, finding, installed.make_install_command(name))
        else:
            yield Check("extras", name, OK, ", ".join(map(str, packages)))


def _check_settings() -> tuple[list[Check], Settings | None]:
    try:
        settings = resolve_settings()
    except SettingsError as error:
        return [Check("settings", "service", FAILED, str(error))], None
    where = "the embedded local service, because no key and no address are set"
    if not settings.is_local:
        where = f"{settings.identity()} at {', '.join(settings.addresses().values())}"
    found = [Check("settings", "service", OK, where)]
    key = settings.api_key
    shown = {
        "key": None if key is None else f"fingerprint {fingerprint_key(key)}",
        "regions": ", ".join(settings.regions) or None,
        "profile": settings.profile,
        "file": str(Path(SETTINGS_FILE).resolve()) if Path(SETTINGS_FILE).exists() else None,
        "ca_file": settings.ca_file,
    }
    found += [Check("settings", name, INFO, str(value)) for name, value in shown.items() if value is not None]
    return found, settings


def get_service_folder(settings: Settings | None) -> Path:
    """Return the data folder of the embedded service: the folder in the settings, or else the default."""
    return (settings.service if settings is not None else None) or find_default_service_folder()


def check_engines(*, needed: bool) -> Iterator[Check]:
    """Try each engine in a process of its own, and yield the results.

    Then yield each voice, model or file that the engines cannot use.

    Parameters
    ----------
    needed
        Whether calls go to the embedded service. Otherwise a broken engine is ``missing``, not ``failed``.
    """
    trouble = FAILED if needed else NOT_NEEDED
    left_out: dict[str, str] = {}
    for kind in KINDS:
        names = sorted(point.name for point in list_entry_points(kind))
        if not names and kind is SPEAKERS:
            command = installed.make_install_command("local")
            yield Check(_name_group(kind), "none", trouble, "no speech engine is installed", command)
        for name in names:
            result = run_probe(kind.name, name)
            if result.get("problem"):
                state = NOT_NEEDED if _is_optional(result.get("command")) else trouble
                yield Check(
                    _name_group(kind),
                    name,
                    state,
                    result["problem"],
                    installed.adapt_install_command(result.get("command")),
                )
            else:
                yield Check(_name_group(kind), name, OK, _describe_engine(kind, result))
            # Two engines may search the same folder and report the same file. Yield each report once.
            left_out |= {report: name for report in result.get("left_out", ()) if report not in left_out}
    for report, name in left_out.items():
        yield Check("left out", name, LEFT_OUT, report)


def _name_group(kind: EngineKind) -> str:
    # Speech engines are simply called engines, because every use of the service needs one of them.
    return "engines" if kind is SPEAKERS else f"{kind.name}s"


def _is_optional(command: str | None) -> bool:
    """Return whether a command installs a part that the local service can do without."""
    if command is None or not command.startswith(("pip install ", "apt install ")):
        return False
    return "--upgrade" not in command and command != _REQUIRED_INSTALL


def _describe_engine(kind: EngineKind, result: dict[str, Any]) -> str:
    has = ""
    if kind is SPEAKERS:
        has = f": {format_count(result['voices'], 'voice')}, {format_count(result['locales'], 'locale')}"
    elif result["pairs"]:
        has = f": {format_count(result['pairs'], 'pair')}"
    return f"{result['version']}{has}" + (f"; {result['tried']}" if "tried" in result else "")


def check_voices() -> Iterator[Check]:
    """Yield the number of voices of each model of the embedded service.

    Also yield each unusable voice folder, and each voice that is left out because its name is taken.
    """
    for folder in list_voice_folders():
        try:
            check_folder(folder)
        except EngineFault as error:
            # With this setting the service cannot start, so the check fails.
            yield Check("voices", "folder", FAILED, f"{error}. Correct {FOLDERS_VARIABLE}")
    result = run_probe()
    if "problem" in result:
        yield Check("voices", "catalogues", FAILED, result["problem"])
        return
    for finding in result.pop("left_out"):
        yield Check("voices", "duplicate", LEFT_OUT, finding)
    for model, counts in result.items():
        finding = f"{format_count(counts['voices'], 'voice')}, {format_count(counts['locales'], 'locale')}"
        yield Check("voices", model, INFO, finding)


def run_probe(*arguments: str) -> dict[str, Any]:
    """Return the result of a probe in a process of its own, or its ``problem``."""
    try:
        ended = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", _PROBE_MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"did not answer within {_PROBE_TIMEOUT_S:.0f} s"}
    try:
        # Libraries may print other lines before. The last line is the JSON of the probe.
        result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return {
            "problem": f"{_describe_exit(ended.returncode)}: {lines[-1] if lines else 'it wrote no error'}"
        }
    return result


def _describe_exit(code: int) -> str:
    return f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def check_hosted_service(settings: Settings) -> Check:
    """List the voices of the configured service, which costs nothing, and return whether this worked."""
    from speechframe import api

    started = time.perf_counter()
    try:
        found = api.voices(service=settings)
    except SpeechframeError as error:
        return Check("service", settings.identity(), FAILED, str(error))
    took_ms = 1000 * (time.perf_counter() - started)
    return Check(
        "service",
        settings.identity(),
        OK,
        f"{format_count(len(found), 'voice')}, answered in {took_ms:.0f} ms",
    )


def check_writable(name: str, folder: Path) -> Check:
    """Return whether `folder` is writable. If it does not exist, check the nearest existing parent.

    The check writes a temporary file and removes it.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check("folders", name, FAILED, f"{folder} cannot be written: {error.strerror}")
    return Check("folders", name, OK, f"{folder} ({free / 2**30:,.0f} GB free)")


def check_audio() -> Iterator[Check]:
    """Write and read a tone in every audio format, and yield which formats work and which fail."""
    import numpy as np
    import soundfile

    from speechframe.audio import codec
    from speechframe.spec.speech import ChannelType, Format

    tone = np.sin(np.arange(_RATE_HZ // 10) * (2 * np.pi * _TONE_HZ / _RATE_HZ)).astype(np.float32)
    works, broken = [], []
    for kind in Format:
        _, rate_hz = codec.get_forced_shape(kind, ChannelType.MONO, _RATE_HZ)
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


def describe_versions() -> dict[str, str]:
    """Return the versions of the package and of Python, and the platform."""
    from speechframe._version import __version__

    return {"version": __version__, "python": platform.python_version(), "platform": platform.platform()}
