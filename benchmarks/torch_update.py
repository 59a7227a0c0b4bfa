"""torch's side: the same pseudodata update, written plainly from the paper's Algorithm 2.

`torch_update.py moons|emnist in_turn|in_threads` takes turns: clients one after the other on all cores, or a thread
for each with a core each.
`torch_update.py check FILE` holds its gradient against coreshot's (see agreement.py) and prints the largest relative
difference.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from turns import serve
from updates import CHANNELS, DENSE, MOONS_GROUPS, MOONS_HIDDEN, UPDATES, Update

Weights = Sequence[Tensor]
CORES = os.cpu_count() or 1


def mlp(weights: Weights, x: Tensor) -> Tensor:
    for index in range(0, len(weights) - 2, 4):
        weight, bias, scale, shift = weights[index : index + 4]
        x = F.relu(F.group_norm(F.linear(x, weight, bias), MOONS_GROUPS, scale, shift, eps=1e-6))
    return F.linear(x, *weights[-2:])


def convnet(weights: Weights, x: Tensor) -> Tensor:
    x = F.relu(F.conv2d(x, *weights[0:2]))
    x = F.relu(F.conv2d(x, *weights[2:4]))
    x = F.max_pool2d(x, 2).flatten(1)
    return F.linear(F.relu(F.linear(x, *weights[4:6])), *weights[6:8])


NETWORKS: dict[str, Callable[[Weights, Tensor], Tensor]] = {"moons": mlp, "emnist": convnet}
OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def chain_end(network: Callable, update: Update, start: Weights, x: Tensor, y: Tensor) -> list[Tensor]:
    """L_C steps on the coreset; the prior is a weight decay, over K because the batch's likelihoods are averaged."""
    weights = [weight.clone().requires_grad_() for weight in start]
    decay = update.prior_precision / update.num_points
    optimizer = OPTIMIZERS[update.chain_optimizer](weights, lr=update.chain_step_size, weight_decay=decay)
    for _ in range(update.chain_length):
        batch_x, batch_y = x, y
        if len(x) > update.batch_size:
            drawn = torch.randint(len(x), (update.batch_size,))
            batch_x, batch_y = x[drawn], y[drawn]
        optimizer.zero_grad()
        F.cross_entropy(network(weights, batch_x), batch_y).backward()
        optimizer.step()
    return [weight.detach() for weight in weights]


def perturbed(weights: Weights, scale: float) -> list[Tensor]:
    return [weight + scale * torch.randn_like(weight) for weight in weights]


def kl_gradient(
    network: Callable, update: Update, starts: Sequence[Weights], ends: Sequence[Weights], x: Tensor, y: Tensor
) -> Tensor:
    """Of the cross-entropies under the experts' weights less those under the coreset's own, in x."""
    x = x.clone().requires_grad_()
    for start, end in zip(starts, ends, strict=True):
        coreset_end = chain_end(network, update, start, x.detach(), y)
        for _ in range(update.num_noise_samples):
            under_data = F.cross_entropy(network(perturbed(end, update.noise_scale), x), y, reduction=update.step_of)
            under_coreset = F.cross_entropy(
                network(perturbed(coreset_end, update.noise_scale), x), y, reduction=update.step_of
            )
            ((under_data - under_coreset) / (len(starts) * update.num_noise_samples)).backward()
    assert x.grad is not None
    return x.grad


def weight_shapes(update: Update) -> list[tuple[int, ...]]:
    """In the order in which the networks take them."""
    if len(update.input_shape) == 1:
        before, shapes = update.input_shape[0], []
        for after in MOONS_HIDDEN:
            shapes += [(after, before), (after,), (after,), (after,)]
            before = after
        return [*shapes, (update.num_outputs, before), (update.num_outputs,)]
    (first, second), (hidden,) = CHANNELS, DENSE
    flat = second * ((update.input_shape[0] - 4) // 2) ** 2
    shapes = [(first, 1, 3, 3), (first,), (second, first, 3, 3), (second,), (hidden, flat), (hidden,)]
    return [*shapes, (update.num_outputs, hidden), (update.num_outputs,)]


def some_weights(update: Update) -> list[Tensor]:
    """As large as an initialisation's."""
    return [torch.randn(shape) / torch.Size(shape[1:]).numel() ** 0.5 for shape in weight_shapes(update)]


class Client:
    def __init__(self, name: str) -> None:
        self.network, self.settings = NETWORKS[name], UPDATES[name]
        settings = self.settings
        *image, channels = settings.input_shape
        self.x = torch.rand(settings.num_points, channels, *image)
        self.y = torch.arange(settings.num_points) % settings.num_outputs
        self.starts = [some_weights(settings) for _ in range(settings.num_trajectories)]
        self.ends = [some_weights(settings) for _ in range(settings.num_trajectories)]

    def update(self) -> Tensor:
        return self.x - self.settings.step_size_x * kl_gradient(
            self.network, self.settings, self.starts, self.ends, self.x, self.y
        )


def take_part(name: str, way: str) -> None:
    clients = [Client(name) for _ in range(UPDATES[name].num_clients)]
    torch.set_num_threads(CORES if way == "in_turn" else 1)
    with ThreadPoolExecutor(
        1 if way == "in_turn" else CORES, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)
    ) as pool:
        serve(lambda: list(pool.map(Client.update, clients)))


def check(path: str) -> None:
    """The file names weights moons.start.0, moons.end.0, ..., in the order that the networks here take them."""
    arrays = load_file(path)
    for name, network in NETWORKS.items():

        def all_of(kind: str, name: str = name) -> Weights:
            return [arrays[f"{name}.{kind}.{index}"] for index in range(len(weight_shapes(UPDATES[name])))]

        x, y = arrays[f"{name}.x"], arrays[f"{name}.y"]
        settings = replace(UPDATES[name], num_points=len(x), num_noise_samples=1, noise_scale=0.0)
        settings = replace(settings, chain_length=int(arrays[f"{name}.chain_length"]), step_of="sum")
        ours = kl_gradient(network, settings, [all_of("start")], [all_of("end")], x, y)
        theirs = arrays[f"{name}.gradient"]
        difference = float((ours - theirs).abs().max() / theirs.abs().max())
        if not difference < 1e-4:
            sys.exit(f"bench: torch's KL gradient of {name} differs from coreshot's by {difference:.1e} of its size.")
        print(
            f"  {name}: torch's KL gradient, after a chain of {settings.chain_length} steps, "
            f"is coreshot's to {difference:.0e} of its size"
        )


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        take_part(*sys.argv[1:])
