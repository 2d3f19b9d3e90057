"""The recipe of docs/scale.md needs no cluster: local services on several machines are the regions of a run."""

import os
import re
from pathlib import Path

import speechframe as spf

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")


def count_spent(url, key):
    """Return how many characters a service has billed."""
    with spf.SyncClient(spf.Settings(base_url=url, api_key=key)) as client:
        limits = client.limits()
    return limits["quota_characters"] - limits["remaining_characters"]


def test_local_services_on_two_ports_share_the_rows_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.chdir(tmp_path)
    Path("lines.csv").write_text(
        "text\n" + "".join(f"Line {number} of the corpus.\n" for number in range(40))
    )
    (recipe,) = [block for block in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL) if "region_urls" in block]
    assert len(recipe.splitlines()) <= 20
    (key,) = re.findall(r'api_key="(.*?)"', recipe)
    with spf.local_service(keys=[key], workers=1) as north, spf.local_service(keys=[key], workers=1) as south:
        recipe = recipe.replace("http://127.0.0.1:8101", north.url).replace(
            "http://127.0.0.1:8102", south.url
        )
        names = {}
        exec(recipe.replace("pt-BR-dora", "nora"), names)
        run = names["run"]
        assert run.stats["done"] == 40
        calls = run.ledger.groupby("lane").size()
        assert set(calls.index) == {"north", "south"}
        assert calls.min() >= 10
        spent = [count_spent(service.url, key) for service in (north, south)]
        assert min(spent) > 0
        assert sum(spent) == run.ledger["credits"].sum()
        # A machine that is lost leaves its rows to the other.
        os.kill(south.pid, 9)
        more = spf.generate(
            ["One more.", "And one."], voice="nora", service=names["machines"], progress=False
        )
        assert set(more.to_pandas()["status"]) == {"done"}
