"""The command ``speechframe models``, which shows what is installed for each engine and language."""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speechframe.cli import exits, show

_KOKORO_LANGUAGES = frozenset({"en", "es", "fr", "hi", "it", "ja", "pt"})
_PIPER_VOICES = (
    "ar_JO-kareem-medium ca_ES-upc_ona-medium cs_CZ-jirka-medium cy_GB-bu_tts-medium "
    "da_DK-talesyntese-medium de_DE-thorsten-medium el_GR-rapunzelina-low fa_IR-amir-medium "
    "fi_FI-harri-medium hu_HU-anna-medium is_IS-bui-medium ka_GE-natia-medium kk_KZ-issai-high "
    "lv_LV-aivars-medium ml_IN-arjun-medium ne_NP-google-medium nl_NL-mls-medium pl_PL-darkman-medium "
    "ro_RO-mihai-medium ru_RU-irina-medium sk_SK-lili-medium sl_SI-artur-medium "
    "sr_RS-serbski_institut-medium sv_SE-nst-medium sw_CD-lanfrica-medium tr_TR-dfki-medium "
    "uk_UA-ukrainian_tts-medium vi_VN-vais1000-medium zh_CN-huayan-medium"
)
_PIPER_BY_LANGUAGE = {name.partition("_")[0]: name for name in _PIPER_VOICES.split()}
"""A voice of Piper's public list (VOICES.md) for each language that Kokoro does not speak."""

_MAX_SHOWN_NAMES = 6
_FOLDERS_HINT = """\
Both downloads come from third parties; read the licence of each model. Afterwards name their folders:
  export SPEECHFRAME_VOICES="$PWD/voices" SPEECHFRAME_TRANSLATION_MODELS="$PWD/translation\""""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Show the installed voices, translation pairs and recognisers, with size and licence, and the "
        "command that adds what is missing. No service is needed, and nothing is downloaded."
    )
    parser.add_argument("language", nargs="?", help="only this language or locale, such as de or de-DE")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print what is installed."""
    from speechframe.cli import checks, probe
    from speechframe.errors import EngineFault

    found = checks.run_probe(probe.MODELS_OPTION)
    if "problem" in found:
        raise EngineFault(f"the engines cannot be listed: {found['problem']}; see speechframe doctor")
    engines = [each for each in map(_convert_report, found["engines"]) if each["kind"] != "changer"]
    languages = {each["language"]: each for each in _list_languages(engines)}
    if asked := options.language:
        language = asked.replace("_", "-").partition("-")[0].casefold()
        if language not in languages:
            options.parser.error(f"{asked!r} has no engine that is known; allowed: {', '.join(languages)}")
        languages = {language: languages[language]}
    if options.json:
        show.print_json({"engines": engines, "languages": list(languages.values())})
        return exits.OK
    if not asked:
        _show_engines(engines)
    show.write_line()
    _show_languages(list(languages.values()), is_cut=not asked)
    if asked:
        _show_missing(languages[language])
    else:
        show.write_line("\n`speechframe models LANGUAGE` shows the commands that add what a language lacks.")
    return exits.OK


def _convert_report(facts: Mapping[str, Any]) -> dict[str, Any]:
    from speechframe.cli import installed

    names = ("kind", "name", "version", "voices", "pairs", "size_bytes", "licence", "problem")
    kept = {name: facts[name] for name in names}
    if facts["problem"] is not None:
        kept["problem"] = facts["problem"].removesuffix(f": {facts['command']}")
    return kept | {"command": installed.adapt_install_command(facts["command"])}


def _list_languages(engines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the voices and translations of each language, and what can be added."""
    from speechframe.spec.locales import get_display_name, get_language

    works = [each for each in engines if each["problem"] is None]
    commands = {each["name"]: each["command"] for each in engines if each["problem"] is not None}
    pairs = [tuple(map(get_language, pair)) for each in works for pair in each["pairs"]]
    voices: dict[str, list[dict[str, Any]]] = {}
    for voice in (voice | {"engine": each["name"]} for each in works for voice in each["voices"]):
        voices.setdefault(get_language(voice["locale"]), []).append(voice)
    for language in sorted(
        {*voices, *_KOKORO_LANGUAGES, *_PIPER_BY_LANGUAGE, *(tag for pair in pairs for tag in pair)}
    ):
        entry = {
            "language": language,
            "name": get_display_name(language),
            "voices": voices.get(language, []),
            "translated_from": sorted({source for source, target in pairs if target == language}),
            "translated_to": sorted({target for source, target in pairs if source == language}),
            "recognisers": [each["name"] for each in works if each["kind"] == "recogniser"],
        }
        yield entry | {"missing": [{"what": w, "command": c} for w, c in _find_missing(entry, commands)]}


def _find_missing(entry: Mapping[str, Any], commands: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield what a language lacks, and the command that adds it. `commands` install missing engines."""
    from speechframe.cli import installed

    language, python = entry["language"], shlex.quote(sys.executable)
    if all(voice["kind"] == "formant" for voice in entry["voices"]):
        command = None
        if language in _KOKORO_LANGUAGES:
            command = commands.get("kokoro") or installed.make_install_command("japanese")
        elif language in _PIPER_BY_LANGUAGE:
            download = (
                f"{python} -m piper.download_voices --download-dir voices {_PIPER_BY_LANGUAGE[language]}"
            )
            command = commands.get("piper") or download
        if command:
            yield "neural voices", command
    library = installed.make_install_command("translate")
    for way, others, pair in (
        ("from", entry["translated_from"], f"en {language}"),
        ("to", entry["translated_to"], f"{language} en"),
    ):
        if language != "en" and "en" not in others:
            download = f"{python} -m fxtranslate models add {pair} --cache-dir translation"
            command = library if commands.get("firefox") == library else download
            yield f"translation {way} English, if Mozilla has it", command
    if not entry["recognisers"] and (command := commands.get("whisper")):
        yield "recogniser", command


def _show_engines(engines: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for each in engines:
        has = "installed" if each["problem"] is None else "missing"
        if each["voices"]:
            homes = {voice["locale"] for voice in each["voices"]}
            voices = show.format_count(len(each["voices"]), "voice")
            has = f"{voices}, {show.format_count(len(homes), 'locale')}"
        elif each["pairs"]:
            has = show.format_count(len(each["pairs"]), "pair")
        size = None if each["size_bytes"] is None else show.format_size(each["size_bytes"])
        rows.append([each["kind"], each["name"], has, size, each["licence"]])
    head = ["kind", "engine", "installed", "size", "licence"]
    show.write_table(head, rows)
    for each in engines:
        if each["problem"] is not None:
            show.write_line(f"\n{each['name']}: {each['problem']}\n  get it: {each['command']}")


def _show_languages(languages: Sequence[Mapping[str, Any]], *, is_cut: bool) -> None:
    rows = []
    for each in languages:
        neural = [voice["voice_id"] for voice in each["voices"] if voice["kind"] != "formant"]
        formant = len(each["voices"]) - len(neural)
        if is_cut and len(neural) > _MAX_SHOWN_NAMES:
            neural[_MAX_SHOWN_NAMES:] = [f"and {len(neural) - _MAX_SHOWN_NAMES} more"]
        rows.append([each["language"], formant, each["translated_from"], each["translated_to"], neural])
    head = ["language", "formant voices", "translated from", "to", "other voices"]
    show.write_table(head, rows, is_cut=is_cut)


def _show_missing(language: Mapping[str, Any]) -> None:
    for lack in language["missing"]:
        show.write_line(f"\n{language['name']} lacks {lack['what']}\n  get it: {lack['command']}")
    if any("piper." in lack["command"] or "fxtranslate" in lack["command"] for lack in language["missing"]):
        show.write_line(f"\n{_FOLDERS_HINT}")
