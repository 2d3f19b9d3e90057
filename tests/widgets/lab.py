"""JupyterLab or Notebook on a free port with nothing of the person who runs it, and what its kernel holds."""

import ast
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

START_S = 90
IDLE = """(name) => {
  const shown = jupyterapp.shell.currentWidget;
  return shown?.context?.path === name && shown.context.isReady
    && shown.sessionContext?.session?.kernel?.status === "idle";
}"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


QUIET_LAB = [
    "--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None", "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]  # fmt: skip
PROGRAMS = {
    "jupyterlab": (QUIET_LAB, lambda name: f"lab/workspaces/w{time.time_ns()}/tree/{name}"),
    "notebook": (
        ["--JupyterNotebookApp.expose_app_in_browser=True"],
        lambda name: f"notebooks/{name}",
    ),
}
"""Module of a front end, to its options and to where it shows a notebook."""


class Lab:
    """JupyterLab, or Notebook 7, over a folder; :meth:`stop` ends it and its kernels."""

    def __init__(self, folder, environment, program="jupyterlab"):
        options, self.address = PROGRAMS[program]
        self.folder, self.port, self.token = folder, free_port(), "t" * 32
        names = ["JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_WORKSPACES_DIR",
                 "JUPYTERLAB_SETTINGS_DIR", "IPYTHONDIR"]  # fmt: skip
        own = {name: folder / "jupyter" / name.lower() for name in names}
        for path in own.values():
            path.mkdir(parents=True)
        self.runtime = own["JUPYTER_RUNTIME_DIR"]
        self._quiet(own["JUPYTERLAB_SETTINGS_DIR"])
        self.log = (folder / "lab.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
             f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}",
             f"--IdentityProvider.token={self.token}", *options],
            env={**environment, **{name: str(path) for name, path in own.items()}}, stdout=self.log, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
        self._wait()

    @staticmethod
    def _quiet(settings):
        folder = settings / "@jupyterlab/apputils-extension"
        folder.mkdir(parents=True)
        (folder / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}', encoding="utf-8")

    def _wait(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "lab.log").read_text()[-3000:]
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self.api("api/status")
                return
            time.sleep(0.1)
        raise TimeoutError("it did not start")

    def api(self, path):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}", headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def notebook(self, name, cells):
        import nbformat  # takes seconds

        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        made = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": kernel}
        )
        nbformat.write(made, self.folder / name)

    def open(self, page, name):
        """Open a notebook and wait for its kernel."""
        page.goto(f"http://127.0.0.1:{self.port}/{self.address(name)}?token={self.token}")
        page.wait_for_function("window.jupyterapp !== undefined", timeout=60_000)
        page.wait_for_function(IDLE, arg=name, timeout=60_000)

    def run_all(self, page, name):
        """Run all cells and wait until the kernel has nothing to do."""
        page.evaluate("async () => { await jupyterapp.commands.execute('notebook:run-all-cells'); }")
        page.wait_for_function(IDLE, arg=name, timeout=90_000)

    @contextlib.contextmanager
    def kernel(self, name):
        """Ask the notebook's own kernel over a second connection: gives a function of an expression."""
        from jupyter_client import BlockingKernelClient

        kernel_id = next(s["kernel"]["id"] for s in self.api("api/sessions") if s["path"] == name)
        client = BlockingKernelClient(connection_file=str(self.runtime / f"kernel-{kernel_id}.json"))
        client.load_connection_file()
        client.start_channels()

        def ask(expression):
            reply = client.execute(
                "", silent=True, store_history=False, reply=True, timeout=30,
                user_expressions={"asked": f"__import__('json').dumps({expression}, default=str)"},
            )  # fmt: skip
            asked = reply["content"]["user_expressions"]["asked"]
            assert asked["status"] == "ok", asked
            return json.loads(ast.literal_eval(asked["data"]["text/plain"]))

        try:
            client.wait_for_ready(timeout=30)
            yield ask
        finally:
            client.stop_channels()
