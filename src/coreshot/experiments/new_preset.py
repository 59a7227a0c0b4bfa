"""A preset for a data set of the store: the spectral coreset, FedAvg, BPC-FL, what they must beat, and pooled records.

The file is for people: every value that a data set decides has a comment that says why.
"""

from __future__ import annotations

import json
from typing import Any

from coreshot.data.store import StoredData, open_data_set
from coreshot.errors import CoreshotError
from coreshot.experiments.preset_sizes import (
    Shape,
    choose_features,
    choose_lengths,
    choose_network,
    coreset_learner,
    look_at,
)

MANY_CLIENTS = 20  # of so many, some are kept for testing; of fewer, a share of each one's records
TEST_FRACTION = 0.2
COMMENTS = {
    "num_points": "pseudo-records that a client sends: about two a class, or fewer where clients are small",
    "num_updates": "of the pseudo-records. It and the lengths below are for minutes on one core: more may be better",
    "step_size_y": "labels stay as they are where it is 0",
    "start": "where pseudo-records begin; see docs/learners.md",
}
NOTE = """# An experiment with the data set {name!r}: {what}.
# Written by `coreshot new-preset`. Run it as it is:
#
#     coreshot run {file} --plan    # what it costs, before any work
#     coreshot run {file}           # tables and figures in runs/{stem}/report.html
#
# Every value may be changed here, or for one run with --set. docs/your-data.md explains the tables.
"""


def write_preset(name: str, file: str, stem: str) -> str:
    """The text of a preset for this data set; it is not checked yet that it can be loaded."""
    data = open_data_set(name)
    testing, test_fraction = _choose_testing(data)
    shape = look_at(data, test_fraction)
    if len(shape.sizes) < 2 and shape.num_left_out == 0:
        raise CoreshotError(
            f"data set {name!r} has {len(shape.sizes)} training client; a federation has at least two: add it under "
            "another name with --partition and --clients."
        )
    lengths = choose_lengths(shape)
    parts = [
        NOTE.format(name=name, what=_describe(data, shape), file=file, stem=stem),
        _top(data, shape),
        _task_lines(data, shape, testing),
        _table(
            "network", choose_network(shape), f"{'for images' if shape.holds_images else 'for vectors'} of this size"
        ),
        _bpc_lines(shape, lengths),
        _baseline_lines(shape),
        _inference_lines(shape, lengths),
        _method_lines(shape, lengths),
        _arm_lines(shape),
    ]
    return "\n".join(parts)


def _describe(data: StoredData, shape: Shape) -> str:
    what = "images" if shape.holds_images else "vectors"
    size = " x ".join(map(str, shape.input_shape))
    target = "regression" if shape.kind == "regression" else f"{len(data.description.class_names)} classes"
    return f"{what} of {size}, {target}, {len(shape.sizes)} training clients with {shape.num_records:,} records"


def _choose_testing(data: StoredData) -> tuple[dict[str, Any], float]:
    """The settings for testing, and the share of each client's records that they hold back."""
    if data.of_role("test"):
        return {}, 0.0
    num_clients = len(data.of_role("train"))
    if num_clients >= MANY_CLIENTS:
        return {"num_test_clients": num_clients // 10}, 0.0
    return {"test_fraction": TEST_FRACTION}, TEST_FRACTION


def _top(data: StoredData, shape: Shape) -> str:
    lines = [
        f"title = {_toml(f'{data.name}: {_describe(data, shape)}')}",
        "seeds = [0] # of all that is random; give several for error bars: seeds = [0, 1, 2]",
        "prior_precision = 1e-2 # of the networks' weights",
    ]
    if shape.kind == "regression":
        lines.append(
            f"noise_scale = {shape.noise_scale:g} # deviation of the noise that networks assume, in units of the "
            "scaled target; about what a straight line leaves"
        )
    lines.append('match = "BPC-FL" # how much others send until they are as good as this arm')
    return "\n".join(lines) + "\n"


def _task_lines(data: StoredData, shape: Shape, testing: dict[str, Any]) -> str:
    lines = ["[task]", 'name = "federated"', f"data = {_toml(data.name)} # of `coreshot data list`"]
    lines.append("# num_clients = 10 # the first training clients; without it, all of them")
    for key, value in testing.items():
        remark = "the last clients test" if key == "num_test_clients" else "of every client's records test"
        lines.append(f"{key} = {_toml(value)} # the data set names no test records: {remark}, and never train")
    if shape.num_left_out:
        lines.append(f"min_records = {shape.num_points} # {shape.num_left_out} clients have fewer, and are left out")
    if shape.is_scaled:
        lines.append(
            'scaling = "standard" # minus the mean, divided by the deviation, of all training records. In a real '
            "federation such constants are public ones"
        )
    return "\n".join(lines) + "\n"


def _table(name: str, values: dict[str, Any], comment: str = "", comments: dict[str, str] | None = None) -> str:
    """A table of TOML; inner tables come last."""
    lines = [f"[{name}]" + (f" # {comment}" if comment else "")]
    inner = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if key not in inner:
            remark = (comments or {}).get(key, "")
            lines.append(f"{key} = {_toml(value)}" + (f" # {remark}" if remark else ""))
    text = "\n".join(lines) + "\n"
    return text + "".join(f"\n{_table(f'{name}.{key}', value)}" for key, value in inner.items())


def _inline(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in values.items()) + " }"


def _toml(value: Any) -> str:
    """Plain values; a text in TOML's basic form is one in JSON's."""
    if isinstance(value, dict):
        return _inline(value)
    if isinstance(value, float):
        return f"{value:g}" if "." in f"{value:g}" or "e" in f"{value:g}" else f"{value:.1f}"
    return json.dumps(value)


def _bpc_lines(shape: Shape, lengths: dict[str, int]) -> str:
    return _table(
        "learner.bpc", coreset_learner(shape, lengths), "BPC-FL: a client learns pseudo-records, sent once", COMMENTS
    )


def _baseline_lines(shape: Shape) -> str:
    size, scale = shape.num_points, 0.1 if shape.holds_images else 1.0
    parts = [
        "# What a learned coreset must beat: as many raw records, as many means, and points without learning.",
        _table("learner.random_subset", {"name": "random_subset", "num_points": size}),
        _table("learner.class_mean", {"name": "class_mean", "num_points": size}),
        _table("learner.noise", {"name": "noise", "num_points": size, "init_scale": scale}),
    ]
    if shape.can_pool:
        parts += ["# All records at the server: what nobody may do, and the best that can be hoped for."]
        parts += [_table("learner.pooled", {"name": "everything"})]
    return "\n".join(parts)


def _inference_lines(shape: Shape, lengths: dict[str, int]) -> str:
    values = {
        "name": "map_estimate",
        "optimizer": "adam",
        "step_size": 1e-3,
        "num_steps": lengths["server_steps"],
        "batch_size": 64,
    }
    return _table("inference.adam", values, "the server trains the network on what it received")


def _method_lines(shape: Shape, lengths: dict[str, int]) -> str:
    features = choose_features(shape)
    spectral = {"name": "spectral", "features": features, "max_bytes": _spectral_bytes(features["dimension"])}
    fed_avg = {
        "name": "fed_avg",
        "num_rounds": lengths["rounds"],
        "local_steps": 20,
        "cohort_size": lengths["cohort"],
        "batch_size": 32,
        "client_optimizer": {"name": "adam", "step_size": 1e-3},
        "server_optimizer": {"name": "sgd", "step_size": 1.0},
    }
    remarks = {"features": "public and random: no client's data are in it", "max_bytes": "of a client's one message"}
    lines = ["[method.spectral] # the closed form: one message, nothing to tune; docs/spectral.md"]
    lines += [f"{key} = {_toml(value)}" + _remark(remarks.get(key)) for key, value in spectral.items()]
    lines += ["", "[method.fed_avg] # many rounds: a client sends its weights in each"]
    lines += [
        f"{key} = {_toml(value)}" + _remark("clients a round" if key == "cohort_size" else None)
        for key, value in fed_avg.items()
    ]
    return "\n".join(lines) + "\n"


def _remark(text: str | None) -> str:
    return f" # {text}" if text else ""


def _spectral_bytes(dimension: int) -> int:
    return 70_000 if dimension <= 1024 else 130_000 if dimension <= 2048 else 260_000


def _arm_lines(shape: Shape) -> str:
    arms = ['[[arm]]\nlabel = "spectral"\nmethod = "spectral"\n', '[[arm]]\nlabel = "FedAvg"\nmethod = "fed_avg"\n']
    learned = {"BPC-FL": "bpc", "random subset": "random_subset", "class mean": "class_mean", "noise": "noise"}
    if shape.kind == "regression":
        learned = {("mean" if label == "class mean" else label): name for label, name in learned.items()}
    if shape.can_pool:
        learned["pooled"] = "pooled"
    arms += [
        f'[[arm]]\nlabel = "{label}"\nlearner = "{name}"\ninference = "adam"\nweighting = "mass"\n'
        for label, name in learned.items()
    ]
    return "\n".join(arms)
