"""Folders of models that the operator names: looked at once, and told to the workers by the environment."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from speechframe.engines.firefox_models import FOLDERS_VARIABLE as TRANSLATION_MODELS
from speechframe.errors import EngineError, SettingsError

log = logging.getLogger("speechframe.service")


def set_voices(folders: Sequence[Path]) -> None:
    """Look at the folders of neural voices, and let this process and its workers know of those given.

    Parameters
    ----------
    folders
        The folders; none leaves those of ``SPEECHFRAME_VOICES``.

    Raises
    ------
    SettingsError
        For a folder that is missing, holds a broken voice or none, or whose engine is not installed.
    """
    from speechframe.engines import kokoro_voices, piper_voices, voice_folders

    whole = [folder.expanduser().absolute() for folder in folders or voice_folders.voice_folders()]
    if not (whole or piper_voices.is_installed() or kokoro_voices.is_installed()):
        installs = f"{kokoro_voices.INSTALL} or {piper_voices.INSTALL}"
        log.info("the catalogue stands on espeak voices alone; for neural ones: %s", installs)
    for folder in whole:
        if os.pathsep in str(folder):
            raise SettingsError(f"the voice folder {folder} has a {os.pathsep} in its name; rename it")
        try:
            found = {
                piper_voices: piper_voices.folder_voices(folder),
                kokoro_voices: kokoro_voices.files_of(folder),
            }
        except EngineError as error:
            raise SettingsError(str(error)) from error
        if not any(found.values()):
            raise SettingsError(
                f"the voice folder {folder} holds no voice: one of Piper is a file NAME.onnx with "
                "NAME.onnx.json beside it, those of Kokoro are style files (.npz, .bin)"
            )
        for engine, files in found.items():
            if files and not engine.is_installed():
                raise SettingsError(
                    f"voices of {folder} cannot be used without their engine: {engine.INSTALL}"
                )
    os.environ[voice_folders.FOLDERS_VARIABLE] = os.pathsep.join(map(str, whole))


def set_translation_models(folders: Sequence[Path]) -> None:
    """Let this process and its workers know of folders of translation models.

    Parameters
    ----------
    folders
        The folders; none leaves those of the environment.

    Raises
    ------
    SettingsError
        For a folder that is missing, or cannot stand in a list of folders.
    """
    whole = [str(folder.expanduser().absolute()) for folder in folders]
    for folder in whole:
        if not Path(folder).is_dir():
            raise SettingsError(f"--translation-models: {folder} is no folder")
        if os.pathsep in folder:
            raise SettingsError(f"the folder {folder} has a {os.pathsep} in its name; rename it")
    if whole:
        os.environ[TRANSLATION_MODELS] = os.pathsep.join(whole)
