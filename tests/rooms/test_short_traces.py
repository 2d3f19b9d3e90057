"""Errors of the user's making in notebooks: the words and the user's own line; a key in neither."""

import json
import os
import subprocess
import sys

from forked import Program

SHELL = Program("""
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor", xmode="Verbose")
shown = []
for cell in ["import speechframe as spf", *json.load(sys.stdin)]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        shell.run_cell(cell)
    shown.append(out.getvalue())
print(json.dumps(shown[1:]))
""")
SECRET = "sk-" + "7" * 20
OF_THE_USER = {
    "SettingsError": "run = spf.generate(['a'], voice='nora', max_credit=3)",
    "NotARun": "run = spf.open_run('/nowhere')",
    "InvalidRows": "run = spf.generate([''], voice='nora', dry_run=True, run_dir='run')",
}
WITH_KEYS = (
    f"spf.configure(api_key='{SECRET}', max_credit=3)",
    f"spf.configure(base_url='https://me:{SECRET}@api.example.com?api-key={SECRET}', max_credit=3)",
    f"spf.configure(**{{'api_key': '{SECRET}', 'max_credit': 3}})",
    f"hidden = '{SECRET}'\n\nspf.generate(['a'], voice='nora', max_credit=3)",
)


def shell(folder, service, *cells):
    """Return what each cell of a real shell shows, which shows the locals of frames where it has its way."""
    key = service.settings.api_key.get_secret_value()
    done = subprocess.run(
        [sys.executable, "-c", SHELL], input=json.dumps(cells), capture_output=True, text=True, timeout=60,
        check=True, cwd=folder,
        env={**os.environ, "SPEECHFRAME_BASE_URL": service.url, "SPEECHFRAME_API_KEY": key},
    )  # fmt: skip
    assert key not in done.stdout
    return json.loads(done.stdout)


def test_an_error_of_the_user_shows_its_words_and_the_line_of_the_call_and_the_whole_trace_if_asked_for(
    tmp_path, service
):
    cells = [f"x = 1\n{line}" for line in OF_THE_USER.values()]
    debug = "import os; os.environ['SPEECHFRAME_DEBUG'] = '1'"
    shown = shell(tmp_path, service, *cells, *WITH_KEYS, debug, *WITH_KEYS)
    for text, (error, line) in zip(shown, OF_THE_USER.items(), strict=False):
        lines = [one for one in text.splitlines() if one]
        assert lines[0] == f"line 2: {line}"
        assert lines[1].startswith(f"{error}: ")
        assert len(lines) <= 5, text
        assert "SPEECHFRAME_DEBUG=1" in lines[-1]
    for text in shown[-len(WITH_KEYS) :]:
        assert text.startswith("Traceback")
        assert "speechframe/" in text
        assert "SettingsError: " in text
    assert SECRET not in str(shown)
