"""A translator that does what a text says, installed for a service under test as a real plug-in."""

# Knows en to eo, and does what a text says; pt-BR to es, and a direct way from en to es that is rough.
ENGINE = """
import os, signal, time
from speechframe.engines.base import Quality, TranslationPair
from speechframe.errors import EngineError

class Moody:
    name = "moody"
    version = "1.0"

    def pairs(self):
        return [TranslationPair("en", "eo", Quality.RULES), TranslationPair("pt-BR", "es", Quality.RULES),
                TranslationPair("en", "es", Quality.ROUGH)]

    def translate(self, texts, pair):
        return [word for text in texts for word in self._one(text, pair)]

    def _one(self, text, pair):
        verb, _, figure = text.partition(" ")
        if verb == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if verb == "hang":
            time.sleep(3600)
        if verb == "refuse":
            raise EngineError("the model is gone")
        if verb == "raise":
            raise RuntimeError("a secret inside " + text)
        if verb == "sleep":
            time.sleep(float(figure.split()[0]))
        if verb == "until":
            path = figure.split()[0]
            while os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):
                time.sleep(0.01)
        if verb == "twice":
            return [text, text]
        return [f"{pair.target}({text})"]
"""


def install(folder):
    """Put the translator into `folder`, as a distribution that PYTHONPATH makes known."""
    info = folder / "moody_translator-1.0.dist-info"
    info.mkdir()
    (folder / "moody_translator.py").write_text(ENGINE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody-translator\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[speechframe.translators]\nmoody = moody_translator:Moody\n")
    return folder
