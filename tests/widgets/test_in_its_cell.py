"""``progress="dashboard"``: in a real kernel the run's own cell shows it; elsewhere there is the bar."""

import json
import time

import pytest
from jupyter_client import KernelManager

import speechframe as spf
from speechframe.errors import SettingsError
from speechframe.testing import FaultyService

VIEW = "application/vnd.jupyter.widget-view+json"
CELL = """
import speechframe as spf
from pydantic import SecretStr
service = spf.Settings(base_url={url!r}, api_key=SecretStr("faulty-key"), profile="faulty")
lines = [f"Line {{k}} of a cell." for k in range(30)]
options = {{"run_dir": {folder!r}, "progress": "dashboard", "max_concurrency": 2, **{options!r}}}
run = spf.generate(lines, voice="nora", service=service, **options)
"""


@pytest.fixture(scope="module")
def service():
    with FaultyService(quota=10**7) as running:
        yield running


@pytest.fixture(scope="module")
def kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(kernel, code, shown=lambda: None):
    """Run a cell; return what it had on the page, and every widget's states by comm, as they were told.

    `shown` is called when there is a widget.
    """
    asked = kernel.execute(code)
    outputs, states, errors, end = [], {}, [], time.monotonic() + 60
    while time.monotonic() < end:
        message = kernel.get_iopub_msg(timeout=60)
        kind, content = message["msg_type"], message["content"]
        if kind in {"comm_open", "comm_msg"}:
            states.setdefault(content["comm_id"], []).append(content["data"].get("state", {}))
            if kind == "comm_open":
                shown()
        elif kind in {"display_data", "stream", "error", "execute_result"}:
            outputs.append((kind, message["parent_header"].get("msg_id") == asked, content))
            errors += [content["ename"]] if kind == "error" else []
        elif content.get("execution_state") == "idle" and message["parent_header"].get("msg_id") == asked:
            assert errors == []
            return outputs, states
    raise AssertionError("the cell did not come to its end")


def shown_in(outputs):
    return [
        (mine, content["data"])
        for kind, mine, content in outputs
        if kind == "display_data" and VIEW in content["data"]
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{}, {"wait": False}], ids=["wait", "live"])
def test_the_cell_that_makes_a_run_shows_its_dashboard(kernel, service, tmp_path, options):
    code = CELL.format(url=service.url, folder=str(tmp_path / "run"), options=options)
    # Slow until the dashboard is there: it is to see the run while it is made.
    service.set(latency=1.0)
    outputs, states = run_cell(kernel, code, lambda: service.set(latency=0.03))
    ((mine, data),) = shown_in(outputs)
    assert mine, "it belongs to this cell"
    assert "RunDashboard generate on" in data["text/plain"]
    told = [state["figures"] for state in states[data[VIEW]["model_id"]] if "figures" in state]
    assert told[0]["status"] == "running", "it is there from the beginning"
    texts = "".join(content["text"] for kind, _, content in outputs if kind == "stream")
    assert "30 calls" in texts
    assert "%|" not in texts, "there is no bar beside it"
    # Whoever looks at it later sees the end, and the run's service is known to its Resume.
    after = """
import json, time
from ipywidgets.widgets.widget import _instances
from speechframe.widgets import RunDashboard
run.wait()
mine = [widget for widget in _instances.values() if isinstance(widget, RunDashboard)][-1]
while mine.figures["status"] == "running": time.sleep(0.05)
print(json.dumps([mine.figures["status"], mine.figures["done"], mine.run is run, run.last_options["service"] is service]))
"""
    outputs, _ = run_cell(kernel, after)
    assert json.loads("".join(c["text"] for k, _, c in outputs if k == "stream")) == [
        "finished",
        30,
        True,
        True,
    ]


def test_outside_a_notebook_it_is_the_bar(service, tmp_path, capsys):
    run = spf.generate(
        ["One.", "Two."],
        voice="nora",
        service=service.settings,
        run_dir=tmp_path / "run",
        progress="dashboard",
    )
    assert run.stats["done"] == 2
    assert run.last_options["service"] == service.settings
    assert "2 calls" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["bar", "", 1])
def test_other_words_are_refused(value):
    with pytest.raises(SettingsError, match="allowed: True, False, 'dashboard'"):
        spf.configure(progress=value)


FIGURE = """
import matplotlib.pyplot as plt
from speechframe.statistics.listening import analyse
from speechframe.statistics.plots import plot_spread
rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 3 + (w + i) % 2}
        for w in range(3) for i in range(4) for c in "xy"]
figure, ax = plt.subplots()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "last", ["plot_spread(analyse(rows, method='mos'), ax=ax)", "made = {}", "made = {}; made"]
)
def test_a_plot_in_own_axes_is_shown_once(kernel, last):
    call = "plot_spread(analyse(rows, method='mos'), ax=ax)"
    outputs, _ = run_cell(kernel, FIGURE + last.format(call))
    pictures = [content for _, _, content in outputs if "image/png" in content.get("data", {})]
    assert len(pictures) == 1
    outputs, _ = run_cell(kernel, "figure")
    assert "image/png" in outputs[0][2]["data"], "another cell can show it again"


CELLS = {
    "run": "run = spf.generate(['One two.', 'Three four.'], voice='nora', run_dir='one')",
    "again": "spf.resume(run)",
    "dashboard": "spf.generate(['Five.'], voice='nora', run_dir='two', progress='dashboard')",
    "say": "spf.say('Hello.', voice='nora')",
    "play": "spf.play(run)",
    "gallery": "spf.gallery()",
    "browse": "spf.browse(run)",
    "watch": "spf.watch('one')",
    "compare_voices": "shown = spf.compare_voices(['nora', 'miles'], ['Hello.', 'Good day.'], run_dir='voices'); shown",
    "compared": "shown.generate()",
    "listening_test": "spf.listening_test(spf.open_run('voices'), item='text')",
    "no mushra": "spf.listening_test(spf.open_run('voices'), 'mushra', item='text', folder='multi')",
    "plain bar": "import sys\nsys.modules['ipywidgets'] = None\nfor name in ('tqdm.auto', 'tqdm.autonotebook', "
    "'tqdm.notebook'): sys.modules.pop(name, None)\nspf.generate(['Six.'], voice='nora', run_dir='three')",
}


@pytest.mark.slow
def test_no_cell_gets_a_red_box(kernel, tmp_path):
    written = {"stdout": "", "stderr": ""}
    folder = f"import os\nos.chdir({str(tmp_path)!r})\nos.environ['SPEECHFRAME_SERVICE'] = {str(tmp_path / 'service')!r}"
    for name, cell in {"folder": f"{folder}\nimport speechframe as spf", **CELLS}.items():
        for kind, _, content in run_cell(kernel, cell)[0]:
            if kind == "stream":
                written[content["name"]] += f"{name}: {content['text']}"
    assert written["stderr"] == ""
    for words in (
        "dashboard: generate on local: 1 row",
        "no mushra: MUSHRA (ITU-R BS.1534) needs a natural reference",
        "plain bar: \r1 row, ",
        "1/1 [",
    ):
        assert words in written["stdout"]
