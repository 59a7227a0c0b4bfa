"""Bytes of the experts at the paper's EMNIST settings over those of all its float32 checkpoints (72.9 GB a client)."""

from __future__ import annotations

from dataclasses import replace

from coreshot.experiments.preset import load_preset
from coreshot.learners.experts import bytes_needed


def store() -> dict[str, float]:
    preset = load_preset("emnist62_paper")
    learner, num_params = preset.learners["bpc"], preset.model.num_params()
    experts, length = learner.experts, learner.data_chain_length
    checkpoints = experts.num_trajectories * (experts.num_steps // experts.save_interval + 1)
    paper = 4 * checkpoints * num_params
    half = replace(experts, store="disk", coding="float16")
    return {
        "store_over_float32": bytes_needed(experts, length, 1, num_params, learner.chain_optimizer) / paper,
        "store_float16_over_float32": bytes_needed(half, length, 1, num_params) / paper,
    }
