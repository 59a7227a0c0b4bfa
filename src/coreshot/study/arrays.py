"""Studies of arrays, with the default methods: for records that are numbers already, and not lines of a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coreshot.errors import CoreshotError
from coreshot.methods import Glm
from coreshot.study.file import NETWORK
from coreshot.study.method_defaults import image_method_lines, method_lines, private_table_features
from coreshot.study.study import Study

DELTA = 1e-5


def table_study(
    name: str,
    num_inputs: int,
    num_classes: int | None = None,
    *,
    max_bytes: int | None = None,
    epsilon: float | None = None,
    delta: float = DELTA,
) -> Study:
    """The agreement about a table of numbers, with the default method for tables.

    For files with named columns, categories, dates or missing cells write a study file (`coreshot study new`), and
    read it with `read_study`.

    Parameters
    ----------
    name : str
        Of the study.
    num_inputs : int
        Columns of a record.
    num_classes : int, optional
        Of a classification, at least two. None: a regression of one quantity.
    max_bytes : int, optional
        The largest size of a site's coded sums. None: as many as its predictions need.
    epsilon : float, optional
        For differential privacy of single records. None: nothing is promised about them. With it, scale the inputs to
        -1 to 1 by public ranges, and a quantity too.
    delta : float
        Of that promise; well below one over the number of a site's records.

    Returns
    -------
    Study

    Examples
    --------
    >>> study = coreshot.table_study("tumours", num_inputs=30, num_classes=2)
    >>> study.agreement.input_shape, study.agreement.num_outputs, study.releases[0].mechanism
    ((30,), 2, 'exact')
    """
    if num_inputs < 1:
        raise CoreshotError(f"table_study: num_inputs is {num_inputs}; a record has at least one column.")
    if epsilon is not None:
        if max_bytes is not None:
            raise CoreshotError("table_study: a private message has no max_bytes; leave it out.")
        method = {"name": "private_spectral", "features": private_table_features(num_inputs)}
        return _study(name, (num_inputs,), num_classes, method | _promise(epsilon, delta))
    lines = method_lines("regression" if num_classes is None else "classification", num_inputs)
    limit = {} if max_bytes is None else {"max_bytes": max_bytes}
    study = _study(name, (num_inputs,), num_classes, tomllib.loads(lines)["method"] | limit)
    assert isinstance(study.method, Glm)
    # Settled, as in a study file: another version's rule does not change what was agreed.
    return replace(study, method=replace(study.method, dimension=study.method.default_dimension(study.model)))


def image_study(
    name: str,
    shape: Sequence[int],
    num_classes: int,
    *,
    max_bytes: int | None = 70_000,
    epsilon: float | None = None,
    delta: float = DELTA,
) -> Study:
    """The agreement about images, with the default method for images.

    Parameters
    ----------
    name : str
        Of the study.
    shape : sequence of int
        Height, width and channels.
    num_classes : int
        At least two.
    max_bytes : int, optional
        The largest size of a site's rows, rounded as finely as fits. None: float32, and all of them.
    epsilon : float, optional
        For differential privacy of single records. None: nothing is promised about them.
    delta : float
        Of that promise; well below one over the number of a site's records.

    Returns
    -------
    Study
        Its inputs are pixels from 0 to 1.

    Examples
    --------
    >>> coreshot.image_study("digits", (8, 8, 1), num_classes=10).agreement.input_shape
    (8, 8, 1)
    """
    if len(shape) != 3 or min(shape) < 1:
        raise CoreshotError(f"image_study: shape is {tuple(shape)}; give height, width and channels.")
    method = tomllib.loads(image_method_lines(shape))["method"]
    if epsilon is not None:
        method = {"name": "private_spectral", "features": method["features"], **_promise(epsilon, delta)}
    elif max_bytes is None:
        del method["max_bytes"]
    else:
        method["max_bytes"] = max_bytes
    return _study(name, shape, num_classes, method)


def _promise(epsilon: float, delta: float) -> dict[str, Any]:
    return {"privacy": {"epsilon": epsilon, "delta": delta}}


def _study(name: str, shape: Sequence[int], num_classes: int | None, method: Mapping[str, Any]) -> Study:
    if num_classes is not None and num_classes < 2:
        raise CoreshotError(f"study {name!r}: num_classes is {num_classes}; give at least two, or none for a quantity.")
    terms = {
        "task": name,
        "kind": "regression" if num_classes is None else "classification",
        "input_shape": list(shape),
        "num_outputs": num_classes or 1,
        "prior_precision": 1.0,
    }
    return Study.from_dict({**terms, "network": NETWORK, "method": method}, f"study {name!r}")
