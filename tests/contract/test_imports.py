"""Imports point one way, down the list of layers, and the server's side cannot reach private data even through
others.
"""

import ast
import re
from pathlib import Path

import pytest

# The order in which the data flow. A module may import from its own layer and from those before it.
LAYERS = [
    "errors",
    "types",
    "config",
    "keys",
    "progress",
    "storage",
    "frozen",
    "data",
    "models",
    "privacy",
    "wire",
    "learners",
    "spectral",
    "glm",
    "inference",
    "methods",
    "study",
    "runtime",
    "fitted",
    "experiments",
    "audit",
    "report",
    "flower",
    "api",
    "estimator",
    "demo",
    "cli",
]
FACADES = (
    "",
    "__main__",
)  # coreshot/__init__.py names the public functions, __main__ starts the command line; nothing may import them


def modules_of(folder: Path) -> dict[str, Path]:
    """Module names below the package, with dots: "data.validate", "data" for data/__init__.py, "" for the package
    itself.
    """
    names = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """Modules of the package that this one imports, anywhere in the file; `from coreshot.data import validate` is
    data.validate.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = [part for part in package if part][: len(package) - node.level + 1]
            targets = [
                (".".join(["coreshot", *base, *([node.module] if node.module else [])]), alias.name)
                for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            targets = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, item in targets:
            if module.split(".")[0] == "coreshot":
                inner = module.removeprefix("coreshot").removeprefix(".")
                whole = f"{inner}.{item}".lstrip(".") if item else inner
                found.add(whole if whole in modules else inner)
    return found


def graph_of(folder: Path) -> dict[str, set[str]]:
    modules = modules_of(folder)
    graph = {name: imports_of(name, path, modules) for name, path in modules.items()}
    for (
        name,
        targets,
    ) in graph.items():  # importing data.validate runs data/__init__.py first; the package's own __init__ runs for all
        targets |= {".".join(name.split(".")[:depth]) for depth in range(1, len(name.split(".")))}
    return {name: targets - {name} for name, targets in graph.items()}


def layer(name: str) -> str:
    return name.partition(".")[0]


def wrong_way(graph: dict[str, set[str]]) -> list[str]:
    found = []
    for name, targets in graph.items():
        if name in FACADES:
            continue
        if layer(name) not in LAYERS:
            found.append(f"{name} is in no layer; add it to the list")
            continue
        for target in sorted(targets):
            if (
                target in FACADES
                or layer(target) not in LAYERS
                or LAYERS.index(layer(target)) > LAYERS.index(layer(name))
            ):
                found.append(f"{name} imports {target or 'the package itself'}")
    return found


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph.get(name, ()))
    return seen


def reaches_data(graph: dict[str, set[str]]) -> list[str]:
    """Modules of the server's inference from which some chain of imports leads to the data."""
    return [
        name
        for name in graph
        if layer(name) == "inference" and any(layer(other) == "data" for other in reachable(graph, name))
    ]


@pytest.fixture(scope="module")
def graph(source):
    return graph_of(source)


def test_imports_point_one_way(graph):
    assert wrong_way(graph) == []


def test_inference_cannot_reach_the_data(graph):
    assert reaches_data(graph) == []


def importers(source, packages):
    return {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(rf"^\s*(import|from) ({packages})\b", path.read_text(), re.M)
    }


def test_only_the_folder_for_it_imports_flower(source):
    """The core is installed without it."""
    assert {path.partition("/")[0] for path in importers(source, "flwr|ray")} == {"flower"}


def test_cryptography_is_imported_for_certificates_and_signatures_alone(source):
    assert importers(source, "cryptography") == {"flower/certs.py", "wire/signatures.py"}


def test_the_checker_sees_the_real_tree(graph):
    """Neither test passes because nothing was read."""
    assert {layer(name) for name in graph} - set(FACADES) == set(LAYERS)
    assert "data.schema" in graph["study.study"]
    assert "data.validate" in graph["api"]
    assert "report.run_report" in graph["cli.commands"]  # an import inside a function
    assert {"data", "types", "errors"} <= reachable(graph, "experiments.run")


@pytest.fixture
def fake_tree(tmp_path):
    files = {
        "__init__.py": "from coreshot.api import fit\n",
        "types.py": "import numpy\n",
        "data/__init__.py": "from coreshot.data.federated import Kind\n",
        "data/federated.py": "from coreshot.types import Points\n",
        "models.py": "import coreshot.types\n",
        "inference/__init__.py": "from coreshot.inference.hmc import Hmc\n",
        "inference/hmc.py": "from coreshot.models import Model\nfrom . import protocol\n",
        "inference/protocol.py": "",
        "api.py": "from coreshot.data import federated\nfrom coreshot.inference.registry import Hmc\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tree_in_order_passes(fake_tree):
    graph = graph_of(fake_tree)
    assert wrong_way(graph) == []
    assert reaches_data(graph) == []
    assert graph["inference.hmc"] == {"models", "inference.protocol", "inference"}


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("types.py", "from coreshot.models import Model\n", "types imports models"),
        ("models.py", "def late():\n    import coreshot.inference.hmc\n", "models imports inference.hmc"),
        ("models.py", "from coreshot import fit\n", "models imports the package itself"),
        ("models.py", "from . import api\n", "models imports api"),
        ("data/federated.py", "from ..inference import Hmc\n", "data.federated imports inference"),
        ("helpers.py", "", "helpers is in no layer; add it to the list"),
    ],
)
def test_negative_control_a_wrong_import_is_reported(fake_tree, file, text, complaint):
    (fake_tree / file).write_text(text)
    assert complaint in wrong_way(graph_of(fake_tree))


def test_negative_control_a_detour_to_the_data_is_reported(fake_tree):
    """Allowed by the order of the layers, and still refused: inference -> models -> data."""
    (fake_tree / "models.py").write_text("from coreshot.data import Kind\n")
    graph = graph_of(fake_tree)
    assert wrong_way(graph) == []
    assert reaches_data(graph) == ["inference", "inference.hmc", "inference.protocol"]
