"""What several test files share: a compilation cache, one file per worker, and small models, data and settings."""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import psutil
import pyarrow
import pyarrow.parquet
import pytest
import whole_entries
from jax._src import compiler
from PIL import Image

from coreshot import cli
from coreshot.config import decode_named
from coreshot.data.handwriting.labels import CHARACTERS
from coreshot.learners import LEARNERS
from coreshot.methods import OneShot
from coreshot.models import Model
from coreshot.models.networks import Mlp
from coreshot.study import Agreement, Study
from coreshot.types import Params, Points, make_points

MOST_KEPT = 2_000_000_000  # bytes of compiled programs on disk
# Bytes of one worker. Beyond them compiled programs are freed, after a file and after any test: the disk has them all.
MOST_AFTER_A_FILE, MOST_AFTER_A_TEST = 1_100_000_000, 2_000_000_000
# Tests compile much and compute little, so programs are compiled fast and run slowly, unless a file asks for
# `pytestmark = pytest.mark.optimized`. One directory keeps them for all processes.
COMPILATION = {
    "jax_platforms": "cpu",
    "jax_persistent_cache_min_compile_time_secs": 0.0,  # to read the smallest program takes half the time
    "jax_disable_most_optimizations": True,
    "jax_traceback_in_locations_limit": 0,  # no program says which lines of Python it came from
}
# XLA's older way to compile fusions takes half the time, and many small programs gain nothing from being compiled in
# parts. Processes that tests start take this from the environment. What users have stands second.
XLA_OPTIONS = {"xla_cpu_use_fusion_emitters": (False, True), "xla_cpu_parallel_codegen_split_count": (1, 32)}
FLAGS = " ".join(f"--{name}={str(ours).lower()}" for name, (ours, _) in XLA_OPTIONS.items())
if FLAGS not in os.environ.get("XLA_FLAGS", ""):  # a worker has it from its controller
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()
# Dozens of processes import the same files: the first of them keeps their bytecode, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tracing makes many objects and few cycles: Python looks for cycles less often than by itself.
gc.set_threshold(50_000, 20, 20)


def configure_jax(**settings: Any) -> None:
    """Of this process and of those that it starts."""
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--old-federation", action="store_true", help="also attack a federation of Flower's own commands: it falls"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "optimized: programs of this file are compiled as users compile them")
    config.addinivalue_line("markers", "slow: not a part of `make quick`")
    cache = compilation_cache(config)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        make_room(cache)
        paths = [str(Path(__file__).parent / "processes"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # of processes that tests start
    whole_entries.install()
    configure_jax(**COMPILATION, jax_compilation_cache_dir=str(cache))
    os.environ["CORESHOT_LEDGER"] = str(Path(tempfile.mkdtemp(prefix="coreshot-tests-")) / "ledger.sqlite")


def make_room(cache: Path) -> None:
    """Nothing is kept beyond some size, nor what a killed process has left half written."""
    entries = list(cache.iterdir())
    is_full = sum(entry.stat().st_size for entry in entries) > MOST_KEPT
    for entry in entries:
        if is_full or entry.suffix == ".part":
            entry.unlink()


@pytest.fixture(autouse=True)
def ledger_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a ledger of its own, which is not there before something is released."""
    path = tmp_path_factory.getbasetemp() / f"ledger-{os.urandom(8).hex()}" / "ledger.sqlite"
    monkeypatch.setenv("CORESHOT_LEDGER", str(path))
    return path


def compilation_cache(config: pytest.Config) -> Path:
    """In pytest's cache; where that is switched off (-p no:cacheprovider), for this run only."""
    if config.pluginmanager.hasplugin("cacheprovider"):
        return config.cache.mkdir("jax")
    if "PYTEST_XDIST_WORKER" in os.environ:
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    folder = tempfile.TemporaryDirectory(prefix="coreshot-tests-")
    config.add_cleanup(folder.cleanup)
    return Path(folder.name)


# Where shapes in signatures are checked: these folders call every function; elsewhere the same ones run many times.
CHECKED = ("byhand", "contract", "truth", "wire")


@pytest.fixture(scope="module", autouse=True)
def _shape_checks(request: pytest.FixtureRequest) -> None:
    jaxtyping.config.update("jaxtyping_disable", request.path.parent.name not in CHECKED)


@pytest.fixture(scope="module", autouse=True)
def compiled_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled with the effort that the file asks for, and freed after it when they have become many."""
    is_optimized = request.node.get_closest_marker("optimized") is not None
    with pytest.MonkeyPatch.context() as patch:
        if is_optimized:
            jax.clear_caches()
            configure_jax(jax_disable_most_optimizations=False)
            patch.setattr(compiler, "get_compile_options", users_compile_options(compiler.get_compile_options))
            patch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"].replace(FLAGS, ""))
        yield
    if is_optimized:
        configure_jax(jax_disable_most_optimizations=True)
    free_programs(0 if is_optimized else MOST_AFTER_A_FILE)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    free_programs(MOST_AFTER_A_TEST)


def free_programs(beyond: int) -> None:
    if psutil.Process().memory_info().rss > beyond:
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # back to the system, not only to this process


def users_compile_options(original: Callable[..., Any]) -> Callable[..., Any]:
    """XLA reads its flags once in a process; one compilation can differ from them."""

    def options(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        found.env_option_overrides += [(name, theirs) for name, (_, theirs) in XLA_OPTIONS.items()]
        return found

    return options


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tests of pages that did not run are told, since a summary in one line would hide them."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "test_pages" in report.nodeid]
    if skipped:
        terminalreporter.section("no page was tested")
        terminalreporter.line(f"{skipped[0].nodeid}: {skipped[0].longrepr[2]}")
        terminalreporter.line("Install a Chromium (Debian: apt-get install chromium) and run the tests again.")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process: they share what they have compiled.

    So do all federations. They wait more than they compute, and only one of them at a time takes memory.
    """
    from xdist.scheduler import LoadFileScheduling

    class FederationsTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "federations" if Path(file).name in FEDERATIONS else file

    config.option.loadscopereorder = False  # it would put files of few tests last, and the longest are among them
    return FederationsTogether(config, log)


TINY_MOONS = """
[task]
name = "moons"
num_clients = 2
points_per_client = 12
noise_scale = 0.14
num_test = 50

[network]
name = "mlp"
hidden = [4]
activation = "tanh"
"""


@pytest.fixture(scope="session")
def tiny_moons() -> str:
    """Task and network of a preset that runs in seconds."""
    return TINY_MOONS


# Files of more than about ten seconds of computing. `make quick` leaves them out.
SLOW = {
    "test_approximate_samplers.py",
    "test_best_start.py",
    "test_diagnostics.py",
    "test_divergence.py",
    "test_dosfl_gradient.py",
    "test_every_method.py",
    "test_executors.py",
    "test_experts.py",
    "test_fedjax.py",
    "test_inferences.py",
    "test_informative_start.py",
    "test_learners.py",
    "test_method_cost.py",
    "test_patches.py",
    "test_plan.py",
    "test_posteriors.py",
    "test_published_learners.py",
    "test_report.py",
    "test_resume.py",
    "test_wide_networks.py",
}
# Files of the most seconds beside those of federations and commands, which come before them.
LONGEST = {
    "test_audit.py",
    "test_audit_noise.py",
    "test_commands.py",
    "test_diagnostics.py",
    "test_dp_sgd.py",
    "test_estimator.py",
    "test_experts.py",
    "test_fedjax.py",
    "test_glm.py",
    "test_informative_start.py",
    "test_learners.py",
    "test_ledger_kills.py",
    "test_mechanisms.py",
    "test_plan.py",
    "test_private_learners.py",
    "test_private_pooled_dm.py",
    "test_report.py",
    "test_standings.py",
}
# Files that start a SuperLink, sites or Ray.
FEDERATIONS = {
    "test_failures.py",
    "test_forgetting.py",
    "test_ray.py",
    "test_secure_federation.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, or one of them at the end would leave the other worker idle."""
    for item in items:
        if item.path.name in SLOW:
            item.add_marker("slow")
    items.sort(key=lambda item: item.path.name not in LONGEST)
    items.sort(key=lambda item: item.path.parent.name not in ("flower", "e2e"))
    items.sort(key=lambda item: item.path.name not in FEDERATIONS)


@pytest.fixture(scope="session")
def project() -> Path:
    return Path(__file__).parent.parent


@pytest.fixture(scope="session")
def source(project: Path) -> Path:
    return project / "src" / "coreshot"


@pytest.fixture
def one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients are learned together: neighbours are then really neighbours."""
    monkeypatch.setattr("coreshot.learners.loop.clients_per_group", lambda: 100)


# A conjugate model: one Dense layer, so theta = (bias, two slopes), and every posterior is a Gaussian in closed form.


@dataclass(frozen=True)
class Gaussian:
    mean: jax.Array
    covariance: jax.Array


@dataclass(frozen=True)
class LinearGaussian:
    """The model and its closed forms; flat weights are the bias and then the two slopes."""

    model: Model

    def posterior(self, points: Points) -> Gaussian:
        return Gaussian(*_closed_form(self.model.prior_precision, self.model.noise_scale, points))

    def unravel_all(self, flat: jax.Array) -> Params:
        """[samples, 3] as the model's weights, one sample a row."""
        return {"Dense_0": {"bias": flat[:, :1], "kernel": flat[:, 1:, None]}}

    def unravel(self, flat: jax.Array) -> Params:
        return {"Dense_0": {"bias": flat[:1], "kernel": flat[1:, None]}}

    def ravel_all(self, params: Params) -> np.ndarray:
        layer = params["Dense_0"]
        return np.concatenate(
            [np.asarray(layer["bias"], np.float64), np.asarray(layer["kernel"], np.float64)[..., 0]], axis=1
        )


@partial(jax.jit, static_argnums=(0, 1))
def _closed_form(prior_precision: float, noise_scale: float, points: Points) -> tuple[jax.Array, jax.Array]:
    features = jnp.concatenate([jnp.ones((points.num_points, 1)), points.x], axis=1)
    scaled = features * points.weight[:, None] / noise_scale**2
    covariance = jnp.linalg.inv(prior_precision * jnp.eye(3) + scaled.T @ features)
    return covariance @ scaled.T @ points.y[:, 0], covariance


def linear_gaussian(noise_scale: float = 0.5, prior_precision: float = 1.0) -> LinearGaussian:
    return LinearGaussian(Model(Mlp(hidden=(), activation="relu"), "regression", (2,), 1, prior_precision, noise_scale))


@pytest.fixture(scope="session")
def make_linear() -> Callable[..., LinearGaussian]:
    return linear_gaussian


@pytest.fixture(scope="session")
def linear() -> LinearGaussian:
    return linear_gaussian()


@pytest.fixture(scope="session")
def linear_points() -> Points:
    """24 observations of 0.3 + x0 - 0.5 x1, with noise 0.5."""
    draws = np.random.default_rng(7)
    x = draws.normal(size=(24, 2))
    return make_points(x, (0.3 + x @ [1.0, -0.5] + 0.5 * draws.normal(size=24))[:, None])


# Small classification and regression problems for everything that learns.


def small_model(kind: str) -> Model:
    if kind == "classification":
        return Model(Mlp(hidden=(4,), activation="tanh"), "classification", (2,), 2, 0.1, 1.0)
    return Model(Mlp(hidden=(4,), activation="swish"), "regression", (2,), 1, 0.1, 0.3)


def small_points(kind: str, seed: int, num_points: int) -> Points:
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(num_points, 2))
    if kind == "regression":
        return make_points(x, np.sin(x[:, :1]) + 0.3 * draws.normal(size=(num_points, 1)))
    label = np.arange(num_points) % 2
    return make_points(x + 2.0 * label[:, None], np.eye(2)[label])


@pytest.fixture(scope="session")
def make_model() -> Callable[[str], Model]:
    return small_model


@pytest.fixture(scope="session")
def sample_points() -> Callable[[str, int, int], Points]:
    return small_points


def some_handwriting(seed: int, num_images: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of noise on blank paper (0 is paper, 255 ink), and labels of all 62 classes."""
    draws = np.random.default_rng(seed)
    images = np.zeros((num_images, 28, 28), np.uint8)
    images[:, 4:24, 4:24] = draws.integers(0, 256, (num_images, 20, 20))
    return images, ((seed + np.arange(num_images)) % 62).astype(np.uint8)


@pytest.fixture(scope="session")
def draw_handwriting() -> Callable[[int, int], tuple[np.ndarray, np.ndarray]]:
    return some_handwriting


# The forms in which people hold federated handwriting, as their own tools write them: all but npz with white paper.

Clients = dict[str, tuple[np.ndarray, np.ndarray]]


def write_leaf(path: Path, clients: Clients) -> None:
    data = {
        user: {"x": ((255 - images.reshape(len(images), -1)) / 255).tolist(), "y": labels.tolist()}
        for user, (images, labels) in clients.items()
    }
    path.write_text(
        json.dumps({"users": list(data), "num_samples": [len(one["y"]) for one in data.values()], "user_data": data})
    )


def write_tff(path: Path, clients: Clients) -> None:
    with h5py.File(path, "w") as file:
        for writer, (images, labels) in clients.items():
            group = file.create_group(f"examples/{writer}")
            group["pixels"], group["label"] = ((255 - images) / 255).astype(np.float32), labels.astype(np.int32)


def as_png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def write_flower_parquet(path: Path, clients: Clients, **changes: Any) -> None:
    """As huggingface.co/datasets/flwrlabs/femnist: PNGs in a struct, numbers for classes, their names in the metadata.

    Lines are not in order.
    """
    lines = [
        {
            "image": {"bytes": as_png(255 - image), "path": "x.png"},
            "writer_id": writer,
            "hsf_id": 4,
            "character": int(label),
            **changes,
        }
        for writer, (images, labels) in clients.items()
        for image, label in zip(images, labels, strict=True)
    ]
    table = pyarrow.Table.from_pylist(lines[::2] + lines[1::2])
    features = {"character": {"names": list(CHARACTERS), "_type": "ClassLabel"}}
    pyarrow.parquet.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path
    )


def write_npz(path: Path, clients: Clients) -> None:
    names = np.concatenate([np.full(len(labels), client) for client, (_, labels) in clients.items()])
    images, labels = (np.concatenate(parts) for parts in zip(*clients.values(), strict=True))
    np.savez(path, images=images, labels=labels, clients=names)


@pytest.fixture(scope="session")
def write_form() -> dict[str, Callable[..., None]]:
    """Functions (path, {client: (images, labels)}); the name of a form is the suffix of its files."""
    return {".json": write_leaf, ".h5": write_tff, ".parquet": write_flower_parquet, ".npz": write_npz}


@pytest.fixture
def three_clients(draw_handwriting: Callable[[int, int], tuple[np.ndarray, np.ndarray]]) -> Clients:
    return {f"f000{seed}_1{seed}": draw_handwriting(seed, 5 + 3 * seed) for seed in range(3)}


BPC = {
    "name": "bpc_fkl",
    "num_points": 3,
    "num_updates": 3,
    "batch_size": 8,
    "init_scale": 0.5,
    "step_size_x": 0.05,
    "step_size_y": 0.0,
    "num_trajectories": 2,
    "chain_optimizer": "adam",
    "chain_step_size": 0.02,
    "data_chain_length": 4,
    "coreset_chain_length": 4,
    "num_noise_samples": 2,
    "noise_scale": 0.01,
    "experts": {"num_trajectories": 3, "num_steps": 10, "save_interval": 2, "step_size": 0.02},
}


@pytest.fixture(scope="session")
def bpc_settings() -> dict[str, Any]:
    """Plain values of a BPC-fKL learner that takes a second."""
    return BPC


@pytest.fixture(scope="session")
def make_bpc() -> Callable[..., Any]:
    """A small BPC-fKL learner; `experts` changes single values of the experts."""

    def make(experts: dict[str, Any] | None = None, **changes: Any) -> Any:
        return decode_named(
            LEARNERS, {**BPC, **changes, "experts": {**BPC["experts"], **(experts or {})}}, "test", "learner"
        )

    return make


@pytest.fixture(scope="session")
def make_study() -> Callable[..., Study]:
    def make(kind: str = "classification", learner: dict[str, Any] | None = None, seed: int = 0) -> Study:
        model = small_model(kind)
        terms = Agreement(
            task="test",
            kind=kind,
            input_shape=model.input_shape,
            num_outputs=model.num_outputs,
            prior_precision=model.prior_precision,
            noise_scale=model.noise_scale,
            seed=seed,
        )
        chosen = decode_named(LEARNERS, learner or BPC, "test", "learner")
        return Study(terms, model.network, OneShot(learner=chosen))

    return make


def trees_equal(one: Any, other: Any) -> bool:
    """Bit by bit: same structure, same shapes, same types, same values."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(map(np.asarray, jax.tree.leaves(one)), map(np.asarray, jax.tree.leaves(other)), strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    return trees_equal


@pytest.fixture
def no_leftovers(tmp_path: Path) -> Iterator[Path]:
    """An empty directory that must be empty afterwards."""
    folder = tmp_path / "empty"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """`coreshot ...` in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")

    def run(*arguments: Any) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["coreshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_of:
            cli.main()
        return exit_of.value.code or 0, *capsys.readouterr()

    return run
