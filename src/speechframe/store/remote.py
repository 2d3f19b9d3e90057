from pathlib import Path
from speechframe.store.folder import Folder


def open_folder(path, filesystem=None):
    return Folder(Path(path).absolute())
