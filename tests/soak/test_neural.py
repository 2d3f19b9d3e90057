"""Neural and formant voices in one table, on a machine that has other work to do."""

import multiprocessing

import pytest

import speechframe as spf

NEURAL, FORMANT = "pt-BR-helena", "pt-BR-larissa"


def keep_busy():
    """Use a core until the process is ended."""
    while True:
        pass


@pytest.fixture
def busy():
    """Keep two cores busy."""
    processes = [
        multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True) for _ in range(2)
    ]
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.kill()
        process.join()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_soak_of_neural_and_formant_rows_on_a_busy_machine(tmp_path, busy):
    sentence = (
        "Na praça da cidade velha, as crianças correm atrás dos pombos enquanto os avós conversam à sombra. "
    )
    texts = [f"Linha {number}. {sentence}{sentence}"[:200] for number in range(40)]
    voices = [NEURAL if number % 2 == 0 else FORMANT for number in range(40)]
    with spf.local_service(data=tmp_path / "service") as service:
        run = spf.generate(texts, voice=voices, service=service, run_dir=tmp_path / "run", progress=False)
    rows = run.to_pandas().sort_values("finished_at")
    assert set(rows.status) == {"done"}, rows.error_message.dropna().tolist()
    assert set(rows.attempts) == {1}
    order = rows.voice_id.tolist()
    second_neural = [place for place, voice in enumerate(order) if voice == NEURAL][1]
    assert order[:second_neural].count(FORMANT) == 20, order
