"""Records are found by key, whatever the keys look like."""

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_cases import done, failed, key_of, manifest, statuses_in

from speechframe.old_store import RunFolder, footer, parts
from speechframe.old_store.index import halves_of

# Keys that share their first half, keys that are no hex digits, and ordinary ones.
HEX = st.integers(0, 2**128 - 1).map("{:032x}".format)
TWINS = st.integers(0, 5).map(lambda n: f"{'ab' * 8}{n:016x}")
KEYS = st.one_of(HEX, TWINS, st.text(st.characters(codec="utf-8"), max_size=40), TWINS.map(str.upper))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(KEYS, st.sampled_from(["done", "suspect", "failed"]), max_size=30),
    st.lists(KEYS, max_size=10),
)
def test_it_finds_what_a_dictionary_finds(tmp_path_factory, status, others):
    run = RunFolder.create(tmp_path_factory.mktemp("index") / "run", manifest())
    with run.lock(), run.writer() as out:
        for key, outcome in status.items():
            out.answer(failed(key) if outcome == "failed" else done(key, status=outcome))
    index = run.index()
    asked = [*status, *others, None]
    assert statuses_in(index, asked) == [status.get(key) for key in asked]
    assert len(index) == len(status)
    assert all((key in index) == (key in status) for key in asked)
    assert {name: n for name, n in index.counts().items() if n} == {
        name: n for name in ("done", "suspect", "failed") if (n := list(status.values()).count(name))
    }
    assert run.keys() == status
    for key in asked:
        if key in index:
            assert run.row(key, ["request_key"]) == {"request_key": key}


def test_packed_keys_are_the_hex_digits(run):
    with run.lock(), run.writer() as out:
        for number in range(100):
            out.answer(done(key_of(number)) if number % 2 else failed(key_of(number)))
    index = run.index()
    assert {bytes(key).hex() for key in index.packed({"done"})} == {key_of(n) for n in range(1, 100, 2)}
    assert len(index.packed({"done", "failed"})) == 100
    assert len(index.packed({"suspect"})) == 0


def test_slices_and_chunks_of_keys_are_read_like_whole_arrays():
    keys = [f"{n:032x}" for n in range(50)]
    whole = pa.array(keys)
    high, low = halves_of(whole)
    assert low.tolist() == list(range(50))
    assert high.tolist() == [0] * 50
    assert halves_of(whole.slice(7, 20))[1].tolist() == list(range(7, 27))
    chunks = pa.chunked_array([whole.slice(30), pa.array([], pa.string()), whole.slice(0, 30)])
    assert halves_of(chunks)[1].tolist() == [*range(30, 50), *range(30)]
    assert halves_of(whole.cast(pa.large_string()))[1].tolist() == list(range(50))


def test_a_part_without_keys_in_its_footer_or_with_others_is_read_by_its_columns(run, monkeypatch):
    found = {}
    wrong = footer.note([key_of(99)], ["done"])
    for number, note in enumerate([None, {}, wrong]):
        if note is not None:
            monkeypatch.setattr(parts, "note", lambda keys, statuses, note=note: note)
        with run.lock(), run.writer() as out:
            for i in range(3):
                out.answer(done(key_of(10 * number + i), status="suspect" if i else "done"))
        assert len(list((run.path / "parts").iterdir())) == number + 1
        found |= {key_of(10 * number + i): "suspect" if i else "done" for i in range(3)}
    index = RunFolder.open(run.path).index()
    assert statuses_in(index, list(found)) == list(found.values())
    assert index.counts() == {"done": 3, "suspect": 6}
    assert key_of(99) not in index


def test_the_footer_is_what_is_read_of_a_part(run, monkeypatch):
    with run.lock(), run.writer() as out:
        out.answer(done(key_of(1)))
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", None)
    assert key_of(1) in RunFolder.open(run.path).index()
