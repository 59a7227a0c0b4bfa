"""What anybody who has a site's message of sums can read off it, and what not, as facts and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from coreshot.data.schema import Classes, Quantity, Table
from coreshot.fitted.column_facts import (
    ColumnFact,
    InputSums,
    column_facts,
    input_names,
    lone_records,
    sums_of_moments,
    sums_of_summary,
    target_fact,
)
from coreshot.glm.polynomials import Polynomials, Term
from coreshot.glm.winsorising import TAIL
from coreshot.methods.glm import Glm, SiteMessage, describe_loss
from coreshot.methods.protocol import Content
from coreshot.study import Study
from coreshot.types import Kind
from coreshot.wire.messages import Message

MAX_NAMED = 3  # products, or groups of one record, that a sentence names


@dataclass(frozen=True)
class MessageFacts:
    """`slopes` has a row for each of `columns`: how the site's own log odds change for a deviation of the column."""

    kind: Kind
    target_name: str
    classes: tuple[str, ...]  # none for a quantity
    sums: InputSums
    columns: list[ColumnFact]
    target: ColumnFact | None  # of a quantity
    missing: str  # how the study treats missing cells
    lone: list[tuple[str, Float[np.ndarray, " inputs"]]]  # what only one record has, and this record
    num_features: int
    num_sums: int  # different ones, about
    products: tuple[str, ...] = ()
    slopes: Float[np.ndarray, "columns logits"] | None = None
    loss: float | None = None
    is_winsorised: bool = False  # whether numbers far from the others were moved to limits that are in the message

    @property
    def num_records(self) -> int:
        return round(self.sums.count)

    @property
    def num_cells(self) -> int:
        return self.num_records * (len({fact.name.partition(" = ")[0] for fact in self.columns}) + 1)

    @property
    def class_sizes(self) -> dict[str, int]:
        return dict(zip(self.classes, (max(round(float(size)), 0) for size in self.sums.label_sums), strict=False))

    @property
    def may_determine_records(self) -> bool:
        """As many unknowns as equations, or fewer; or no more records than features."""
        return self.num_records <= self.num_features or self.num_cells <= self.num_sums


def message_facts(study: Study, message: Message, content: Content) -> MessageFacts | None:
    """None where the message is not of exact sums over a table's columns."""
    if not isinstance(study.inputs, Table) or study.target is None:
        return None
    if isinstance(study.method, Glm) and isinstance(content, SiteMessage):
        return _facts_of_glm(study, study.method, study.inputs, message, content)
    sums = sums_of_moments(study, content)
    if sums is None:
        return None
    size = content.sent.shape[1]
    return _facts(study, study.inputs, sums, size - content.num_outputs, size * (size + 1) // 2)


def _facts(
    study: Study, table: Table, sums: InputSums, num_features: int, num_sums: int, **more: object
) -> MessageFacts:
    target = study.target
    assert target is not None
    known: dict[str, object] = {
        "kind": study.agreement.kind,
        "target_name": target.name,
        "classes": target.classes if isinstance(target, Classes) else (),
        "sums": sums,
        "columns": column_facts(table, target, sums),
        "target": target_fact(target, sums) if isinstance(target, Quantity) else None,
        "missing": table.missing,
        "lone": lone_records(table, sums, target),
    }
    return MessageFacts(**known, num_features=num_features, num_sums=num_sums, **more)  # type: ignore[arg-type]


def _facts_of_glm(study: Study, method: Glm, table: Table, message: Message, content: SiteMessage) -> MessageFacts:
    num_inputs = math.prod(study.agreement.input_shape)
    polynomials = method.polynomials(study.model)
    sums, names = (
        sums_of_summary(content.summary(polynomials), num_inputs, method.fills),
        input_names(table),
    )
    products = tuple(_product_name(term, names) for term in polynomials.terms if len(term) > 1)
    center, scale, weights = (np.asarray(message.arrays[name], np.float64) for name in ("center", "scale", "weights"))
    weights = polynomials.shifted_basis(center, scale) @ weights  # they are of (x - center) / scale
    slopes = None
    if weights.size and np.sum(sums.label_sums > 0.5) > 1:
        slopes = _slopes_at_mean(polynomials, weights, sums)[: len(table.column_inputs)]
    num_sums = _count_sums(polynomials.terms, frozenset(table.number_inputs), study.agreement.num_outputs)
    return _facts(
        study,
        table,
        sums,
        polynomials.dimension,
        num_sums,
        products=products,
        slopes=slopes,
        loss=content.loss,
        is_winsorised=content.limits is not None,
    )


def _product_name(term: Term, names: list[str]) -> str:
    parts = [f"{names[entry]}^{term.count(entry)}" if term.count(entry) > 1 else names[entry] for entry in _once(term)]
    return " x ".join(parts)


def _once(term: Term) -> list[int]:
    return sorted(set(term))


def _slopes_at_mean(
    polynomials: Polynomials, weights: Float[np.ndarray, "d logits"], sums: InputSums
) -> Float[np.ndarray, "inputs logits"]:
    """The derivative of each logit by each input at the mean record, times the input's deviation."""
    mean = sums.joint[0, 1 : 1 + sums.num_inputs] / sums.count
    square = np.diag(sums.joint)[1 : 1 + sums.num_inputs] / sums.count
    slopes = np.zeros((sums.num_inputs, weights.shape[1]))
    for row, term in enumerate(polynomials.terms, 1):
        for entry in _once(term):
            others = list(term)
            others.remove(entry)
            slopes[entry] += term.count(entry) * np.prod(mean[others]) * weights[row]
    return slopes * np.sqrt(np.maximum(square - mean**2, 0.0))[:, None]


def _count_sums(terms: tuple[Term, ...], numbers: frozenset[int], num_outputs: int) -> int:
    """Different products of two features, and of a feature and a label. The square of a 0/1 input is the input."""
    every = [(), *terms]
    different = {_reduced(one + other, numbers) for index, one in enumerate(every) for other in every[index:]}
    return len(different) + len(every) * max(num_outputs - 1, 1)


def _reduced(term: Term, numbers: frozenset[int]) -> Term:
    return tuple(sorted([*(entry for entry in term if entry in numbers), *{e for e in term if e not in numbers}]))


def told(facts: MessageFacts) -> list[str]:
    """What can be read off, in sentences."""
    sizes = ", ".join(f"{name} {size:,}" for name, size in facts.class_sizes.items())
    found = [
        f"It stands for {facts.num_records:,} {'record' if facts.num_records == 1 else 'records'}"
        + (f" ({facts.target_name}: {sizes})." if sizes else ".")
    ]
    if facts.target is not None and facts.target.mean is not None:
        found.append(
            f"The mean of {facts.target_name} is {facts.target.mean:.4g}, its deviation {facts.target.deviation:.4g}."
        )
    if facts.products:
        named = ", ".join(facts.products[:MAX_NAMED]) + (", ..." if len(facts.products) > MAX_NAMED else "")
        count = f"{len(facts.products):,} products of columns" if len(facts.products) > 1 else "a product of columns"
        found.append(
            f"Also exact up to rounding: how any two columns are correlated, and the same for {count} ({named}; "
            "--json names all)."
        )
    else:
        found.append("Also exact up to rounding: how any two columns are correlated.")
    if facts.slopes is not None:
        where = "by 'own fit'" if len(facts.classes) == 2 else "by what --json calls slopes"
        found.append(
            f"The site's own logistic regression is in it, with all coefficients: its log odds change {where} where "
            "the column is one deviation above its mean and all others are at theirs."
        )
    elif facts.kind == "regression":
        found.append("The site's own linear regression follows from the sums.")
    else:
        found.append(_absent_fit(facts))
    if facts.loss is not None:
        loss = describe_loss(facts.kind, facts.loss)
        found.append(f"{loss[0].upper()}{loss[1:]}, by its header; the sums are as exact as that needs.")
    if facts.is_winsorised:
        found.append(
            f"Of each number there are also two limits, from which its {TAIL:.0%} and {1 - TAIL:.0%} quantiles can be "
            "read off; cells beyond the limits were moved to them, so means and deviations are of what was moved."
        )
    return found


def _absent_fit(facts: MessageFacts) -> str:
    if min(facts.class_sizes.values()) == 0 and sum(size > 0 for size in facts.class_sizes.values()) == 1:
        return "It has records of one class, and so no logistic regression of its own."
    return "A linear regression of the site's labels follows from the sums."


def not_told(facts: MessageFacts) -> list[str]:
    """What cannot be read off directly, and where single records are in danger all the same."""
    found = [
        "Not in it: names, the order of records, columns that the study does not name; and, directly, single records, "
        "medians, smallest and largest values, because every number is a sum over all records or a fit to them."
    ]
    if facts.missing == "zero":
        found.append("The study says missing = 'zero': a missing number counts as the middle of its range.")
    if facts.num_records == 1:
        return [*found, "warning: of one record, the means are this record."]
    if facts.may_determine_records:
        found.append(
            f"warning: about {facts.num_sums:,} different sums of {facts.num_features:,} features stand for "
            f"{facts.num_records:,} records with {facts.num_cells:,} cells: so many sums may determine single records."
        )
    if facts.lone:
        named = "; ".join(words for words, _ in facts.lone[:MAX_NAMED]) + (
            "; ..." if len(facts.lone) > MAX_NAMED else ""
        )
        found.append(
            f"warning: one record alone has each of these: {named}. Sums over one record are that record, so its other "
            "cells can be read off, up to rounding."
        )
    return found
