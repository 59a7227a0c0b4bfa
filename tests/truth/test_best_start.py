"""The chosen start is the one of many whose chains make the client's data most likely; it beats the draws that it was
chosen from.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import make_moons

from coreshot.learners.bpc_fkl import best_start
from coreshot.learners.coreset_chains import chain_ends
from coreshot.learners.starts import between_neighbours, first_labels
from coreshot.types import Points, make_points


@pytest.fixture(scope="module")
def data():
    x, label = make_moons(20, noise=0.1, random_state=0)
    return make_points(x, np.eye(2)[label])


@pytest.fixture(scope="module")
def scored(data, make_bpc, make_model):
    """The mean log-likelihood of the data after chains on the chosen start, and on eight other draws, with chains of
    another key.
    """
    model, learner = make_model("classification"), make_bpc(start="between", num_starts=64, coreset_chain_length=60)
    labels, weight = first_labels(model, data, 4), jnp.full(4, 5.0)
    inits = jax.vmap(lambda key: jax.flatten_util.ravel_pytree(model.init(key))[0])(
        jax.random.split(jax.random.key(9), 8)
    )

    @jax.jit
    def score(places):
        ends = chain_ends(learner, model, Points(places, labels, weight), jax.random.key(4), inits)
        return jnp.mean(jax.vmap(lambda params: model.log_prob(params, data))(ends))

    chosen = best_start(learner, model, data, labels, weight, jax.random.key(0), jax.random.key(1))
    others = [between_neighbours(jax.random.key(100 + seed), data, labels, 0.3) for seed in range(8)]
    return float(score(chosen)), [float(score(places)) for places in others]


def test_the_choice_is_better_than_a_draw(scored):
    chosen, others = scored
    assert np.isfinite(chosen)
    assert chosen > np.mean(others)
