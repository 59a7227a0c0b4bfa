"""The head of a generalised linear model as a graph of ONNX: limits, filling, polynomials, scores, link."""

from __future__ import annotations

import numpy as np

from coreshot.glm.filling import Filling
from coreshot.glm.head import Head
from coreshot.glm.logistic import SPARED
from coreshot.glm.polynomials import Polynomials
from coreshot.glm.winsorising import Limits
from coreshot.models.onnx_graph import Graph, Outputs


def add_features(
    graph: Graph, x: str, num_inputs: int, polynomials: Polynomials, filling: Filling, limits: Limits | None, head: Head
) -> str:
    """Standardised, as the head sees them."""
    if limits is not None:
        x = graph.add("Max", x, graph.constant(limits.lowest[None]))
        x = graph.add("Min", x, graph.constant(limits.highest[None]))
    if filling.pairs:
        selects, values = np.zeros((num_inputs, num_inputs)), np.zeros((1, num_inputs))
        for (entry, indicator), value in zip(filling.pairs, filling.values, strict=True):
            selects[indicator, entry], values[0, entry] = 1.0, value
        is_missing = graph.add("Greater", graph.add("MatMul", x, graph.constant(selects)), graph.constant(0.5))
        x = graph.add("Where", is_missing, graph.constant(values), x)
    one = graph.add("Add", graph.add("Mul", graph.take(x, [0]), graph.constant(0.0)), graph.constant(1.0))
    extended = graph.add("Concat", x, one, axis=1)  # an input that is 1, for terms of lower degree
    degree = max(map(len, polynomials.terms))
    entries = [[*term, *[num_inputs] * (degree - len(term))] for term in ((), *polynomials.terms)]
    features = graph.take(extended, [term[0] for term in entries])
    for place in range(1, degree):
        features = graph.add("Mul", features, graph.take(extended, [term[place] for term in entries]))
    return graph.add("MatMul", features, graph.constant(head.basis[:, 1:]))


def add_scores(graph: Graph, features: str, head: Head, more: float) -> tuple[str, str]:
    """Mean and variance of each logit, or of each quantity; `more` is the variance of a new site."""
    mean = graph.add(
        "Add", graph.add("MatMul", features, graph.constant(head.slopes)), graph.constant(head.intercepts[None])
    )
    parts = []
    for root in head.roots:
        rooted = graph.add("MatMul", features, graph.constant(root.T))
        parts.append(graph.sum_rows(graph.add("Mul", rooted, rooted)))
    variance = graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    return mean, graph.add("Add", variance, graph.constant(more))


def add_probabilities(graph: Graph, mean: str, variance: str, head: Head, of_site: float) -> Outputs:
    """As `logistic.damp` and a softmax; two classes have one logit."""
    usual = graph.constant((of_site + SPARED * head.usual_variances)[None])
    beyond = graph.add("Max", graph.add("Sub", variance, usual), graph.constant(0.0))
    scaled = graph.add("Mul", graph.add("Add", beyond, graph.constant(of_site)), graph.constant(np.pi / 8))
    logits = graph.add("Div", mean, graph.add("Sqrt", graph.add("Add", scaled, graph.constant(1.0))))
    if head.slopes.shape[1] == 1:
        logits = graph.add("Concat", graph.add("Mul", logits, graph.constant(0.0)), logits, axis=1)
    return {"probabilities": graph.softmax(logits)}


def add_quantity(graph: Graph, mean: str, variance: str, noise_variance: float) -> Outputs:
    deviation = graph.add("Sqrt", graph.add("Add", variance, graph.constant(noise_variance)))
    return {"mean": mean, "deviation": deviation}


def add_count(graph: Graph, mean: str, variance: str, of_site: float, largest_count: float) -> Outputs:
    """As `count_predictions.predict_counts`, on the study's scale."""
    half = graph.constant(2 / largest_count)
    rate = graph.add("Exp", graph.add("Add", mean, graph.constant(of_site / 2)))
    spread = graph.add("Sub", graph.add("Exp", variance), graph.constant(1.0))
    total = graph.add("Add", rate, graph.add("Mul", graph.add("Mul", rate, rate), spread))
    scaled = graph.add("Sub", graph.add("Mul", rate, half), graph.constant(1.0))
    return {"mean": scaled, "deviation": graph.add("Mul", graph.add("Sqrt", total), half)}
