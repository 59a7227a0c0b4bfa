"""Prior precisions of slopes of columns with two values: those of the values themselves, not of standardised ones.

Features are standardised, so that a group of them can have one prior precision. A category that few records have has a
small deviation, and the same prior of its standardised slope would allow it a large effect, about which few records
say little. So a column with two values counts in units of its values, as if half of the records had each; a number is
standardised (Gelman, "Scaling Regression Inputs by Dividing by Two Standard Deviations", Statistics in Medicine 2008).
Of a column with shares p and 1 - p that is 1 / (4 p (1 - p)) times the precision, and of a product of columns the
product of theirs. It was chosen on the development tables (docs/glm.md).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from coreshot.glm.polynomials import SMALLEST_DEVIATION, Polynomials

LARGEST = 1_000.0  # of the precision of one column, or of a product
SAME = 1 / 16  # of the variance: moments that differ by less are those of 0 and 1
MOST = 0.75  # of the squares: values are -1 and 1, but for some missing cells


def prior_scales(polynomials: Polynomials, moments: Float[np.ndarray, "d d"]) -> Float[np.ndarray, " slopes"]:
    """Of raw features with these sums of products: one-hot columns and indicators are 0 or 1, yes and no are 1 and -1.

    What is in neither units, such as a site's own standardised records, has no scale of its own."""
    singles = [column for column, term in enumerate(polynomials.terms, 1) if len(term) == 1]
    mean, square = moments[0, singles] / moments[0, 0], np.diag(moments)[singles] / moments[0, 0]
    variance = np.maximum(square - mean**2, SMALLEST_DEVIATION**2)
    is_zero_or_one = np.abs(square - mean) <= SAME * variance
    distance = np.where(is_zero_or_one, 1.0, 2.0)
    is_known = np.isin(np.arange(len(singles)), polynomials.two_valued) & (is_zero_or_one | (square >= MOST))
    of_inputs = np.where(is_known, np.clip(distance**2 / (4 * variance), 1.0, LARGEST), 1.0)
    found = [np.prod(of_inputs[list(term)]) for term in polynomials.terms]
    return np.minimum(found, LARGEST)
