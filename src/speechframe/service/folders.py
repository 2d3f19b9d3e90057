"""Folders of models that the operator names: looked at once, and told to the workers by the environment."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from speechframe.engines.firefox_models import FOLDERS_VARIABLE as TRANSLATION_MODELS
from speechframe.errors import EngineError, SettingsError

log = logging.getLogger("speechframe.service")


def set_voices(folders: Sequence[Path]) -> None:
    """Look at the folders of Piper voices, and let this process and its workers know of those that are given.

    Parameters
    ----------
    folders
        The folders; none leaves those of ``SPEECHFRAME_VOICES``.

    Raises
    ------
    SettingsError
        For a folder that is missing or holds a broken voice, or when Piper is not installed.
    """
    from speechframe.engines import piper_voices

    named = os.environ.get(piper_voices.FOLDERS_VARIABLE, "").split(os.pathsep)
    folders = folders or [Path(name) for name in named if name]
    if not piper_voices.is_installed():
        if folders:
            raise SettingsError(
                f"voices of {folders[0]} cannot be used without Piper: {piper_voices.INSTALL}"
            )
        log.info("the catalogue stands on espeak voices alone; for neural ones: %s", piper_voices.INSTALL)
    whole = [str(folder.expanduser().absolute()) for folder in folders]
    try:
        for folder in whole:
            if os.pathsep in folder:
                raise SettingsError(f"the voice folder {folder} has a {os.pathsep} in its name; rename it")
            piper_voices.folder_voices(Path(folder))
    except EngineError as error:
        raise SettingsError(str(error)) from error
    os.environ[piper_voices.FOLDERS_VARIABLE] = os.pathsep.join(whole)


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
