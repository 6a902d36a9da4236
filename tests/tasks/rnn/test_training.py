"""Ask, evaluate, tell and apply without a network between them."""

import numpy as np
import pytest

from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy, ask, tell
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.rnn.examiner import text_loss
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.tokens import TokenArray
from fedlearn.text.windows import WindowShape

VOCAB = 8
UNIGRAM_ENTROPY, BIGRAM_ENTROPY, TRIGRAM_ENTROPY = 2.03, 0.98, 0.45
"""Nats per token of the synthetic text."""


def synthetic_text(n_tokens: int) -> TokenArray:
    """Each token follows from the two before it, but for one in ten."""
    generator = np.random.default_rng(5)
    text = generator.integers(0, VOCAB, n_tokens)
    for place in np.flatnonzero(generator.random(n_tokens) > 0.1)[2:]:
        text[place] = (text[place - 1] + 3) % VOCAB if text[place - 1] % 2 else (text[place - 2] + 1) % VOCAB
    return text.astype(np.uint16)


@pytest.mark.parametrize(("rank", "n_layers"), [(1, 1), (1, 2), (0, 1)])
def test_training_lowers_the_loss_of_unseen_text(rank: int, n_layers: int) -> None:
    text = synthetic_text(20_000)
    training, unseen = text[:16_000], text[16_000:]
    objective = RnnObjective(
        seed=4,
        vocab_size=VOCAB,
        hidden_size=24,
        n_layers=n_layers,
        window=WindowShape(batch_size=1, context=8, scored=8),
        embedding_scale=3.0,
        unigram_counts=np.bincount(training, minlength=VOCAB),
    )
    strategy = Strategy(
        perturbation=Perturbation(sigma=0.02, rank=rank),
        group_size=16,
        population_limit=1024,
        optimizer=Adam(0.02, 0.9, 0.99),
        fitness_shaping="normalized",
    )
    block = block_name({"tokens": training})
    holding = Holding(objective, seed=4, threads=2, blocks={block: {"tokens": training}})
    holding.begin(0, keeps_start=False)
    before = text_loss(objective, holding.replica.weights, unseen, threads=2)
    last: Update | None = None
    for step in range(50):
        population = ask(strategy, step, last)
        trials = Trials(
            step=step,
            perturbation=population.perturbation,
            group_size=population.group_size,
            first_member=0,
            n_members=population.limit,
        )
        losses = holding.evaluate(trials, block).losses
        spans = ((0, population.limit),)
        last = tell(strategy, population, block=block, spans=spans, losses=losses, duration_s=0.0)
        holding.apply(last)
    after = text_loss(objective, holding.replica.weights, unseen, threads=2)
    assert before == pytest.approx(UNIGRAM_ENTROPY, abs=0.1)
    assert TRIGRAM_ENTROPY - 0.05 < after < 0.7 < BIGRAM_ENTROPY  # it remembers more than the last token
