"""What a plan counts, worked on paper."""

from coreshot.experiments.cost import _input_gradients, _training_steps


def test_steps_with_a_store(make_bpc):
    """3 experts x 10 steps, 4 updates x 2 chains x 5 steps."""
    learner = make_bpc(num_updates=4, num_trajectories=2, coreset_chain_length=5, guidance="none")
    assert _training_steps(learner) == 3 * 10 + 4 * 2 * 5


def test_the_search_for_a_start_adds_its_chains(make_bpc):
    """6 draws x 2 chains x 5 steps more; one draw is not searched."""
    settings = {"num_updates": 4, "num_trajectories": 2, "coreset_chain_length": 5, "guidance": "client"}
    assert _training_steps(make_bpc(**settings, num_starts=6)) == 3 * 10 + 4 * 2 * 5 + 6 * 2 * 5
    assert _training_steps(make_bpc(**settings, num_starts=1)) == 3 * 10 + 4 * 2 * 5


def test_steps_with_replay(make_bpc):
    """Starts 0, 2, 4, 6. A pool of 2 begins half-way through them on the average, 4 steps, and 4 for the chain; the 8 draws move both ends by 2
    each, and renew 2 trajectories, whose later ends take 4 steps each."""
    learner = make_bpc(
        num_updates=4,
        num_trajectories=2,
        coreset_chain_length=5,
        guidance="none",
        experts={"store": "replay", "pool": 2},
    )
    assert _training_steps(learner) == 4 * 2 * 5 + 2 * (4 + 4) + 8 * 2 * 2 + 2 * 4


def test_input_gradients(make_bpc):
    """4 updates, each at 2 x 3 perturbed ends of either kind; or with 10 further draws for the data's."""
    assert _input_gradients(make_bpc(num_updates=4, num_trajectories=2, num_noise_samples=3)) == 4 * 12
    assert _input_gradients(
        make_bpc(num_updates=4, num_trajectories=2, num_noise_samples=3, num_data_draws=10)
    ) == 4 * (6 + 10)
